"""/v1/conversations and what is under it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from octavo.errors import RequestError
from octavo.server.transport.body import read_body
from octavo.server.transport.owner import owner_of
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.items import Item
from octavo.server.responses.queries import page_of
from octavo.server.responses.read_items import only_items, read_items
from octavo.server.responses.replies import DeletedConversation, item_list
from octavo.server.responses.schema import MAX_ITEMS, ConversationRequest, ConversationUpdate, NewItems
from octavo.server.generation.service import json_response


def add_routes(router: APIRouter, store: ConversationStore) -> None:
    """The routes of the conversations API."""
    _conversations(router, store)
    _items(router, store)


def _conversations(router: APIRouter, store: ConversationStore) -> None:
    @router.post("/v1/conversations")
    async def create_conversation(request: Request) -> Response:
        body = await read_body(request, ConversationRequest, {})
        items = [] if body.items is None else _new_items(body.items)
        return json_response(await store.create(owner_of(request), body.metadata or {}, items))

    @router.get("/v1/conversations/{conversation_id}")
    async def get_conversation(conversation_id: str, request: Request) -> Response:
        return json_response(await store.get(owner_of(request), conversation_id))

    @router.post("/v1/conversations/{conversation_id}")
    async def update_conversation(conversation_id: str, request: Request) -> Response:
        body = await read_body(request, ConversationUpdate, {})
        return json_response(await store.update(owner_of(request), conversation_id, body.metadata or {}))

    @router.delete("/v1/conversations/{conversation_id}")
    async def delete_conversation(conversation_id: str, request: Request) -> Response:
        await store.delete(owner_of(request), conversation_id)
        return json_response(DeletedConversation(conversation_id))


def _items(router: APIRouter, store: ConversationStore) -> None:
    @router.post("/v1/conversations/{conversation_id}/items")
    async def add_items(conversation_id: str, request: Request) -> Response:
        body = await read_body(request, NewItems, {})
        added = await store.add(owner_of(request), conversation_id, _new_items(body.items))
        return json_response(item_list(added, has_more=False))

    @router.get("/v1/conversations/{conversation_id}/items")
    async def list_items(conversation_id: str, request: Request) -> Response:
        items, more = await store.page(owner_of(request), conversation_id, page_of(request))
        return json_response(item_list(items, has_more=more))

    @router.get("/v1/conversations/{conversation_id}/items/{item_id}")
    async def get_item(conversation_id: str, item_id: str, request: Request) -> Response:
        return json_response(await store.item(owner_of(request), conversation_id, item_id))

    @router.delete("/v1/conversations/{conversation_id}/items/{item_id}")
    async def delete_item(conversation_id: str, item_id: str, request: Request) -> Response:
        return json_response(await store.delete_item(owner_of(request), conversation_id, item_id))


def _new_items(value: object) -> list[Item]:
    if not isinstance(value, list):
        raise RequestError("'items' must be an array.", param="items", code="invalid_type")
    if len(value) > MAX_ITEMS:
        raise RequestError(
            f"'items' holds {len(value)} items; at most {MAX_ITEMS} are taken at a time.",
            param="items",
            code="invalid_value",
        )
    return only_items(read_items(value, "items"))
