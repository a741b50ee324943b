"""/v1/conversations and what is under it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.server.generation.service import json_response
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.items import Item
from octavo.server.responses.queries import PAGE, page_of
from octavo.server.responses.read_items import only_items, read_items
from octavo.server.responses.replies import Conversation, DeletedConversation, ItemList, item_list
from octavo.server.responses.schema import MAX_ITEMS, ConversationRequest, ConversationUpdate, NewItems
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body
from octavo.server.transport.owner import owner_of

_GONE = (404,)
_ONE = "/v1/conversations/{conversation_id}"
_ITEM = f"{_ONE}/items/{{item_id}}"


class ConversationsApi:
    """The Conversations API."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store

    @route("POST", "/v1/conversations", "Create a conversation", body=ConversationRequest, reply=Conversation)
    async def create_conversation(self, request: Request) -> Response:
        body = await read_body(request, ConversationRequest, {})
        items = [] if body.items is None else _new_items(body.items)
        return json_response(await self._store.create(owner_of(request), body.metadata or {}, items))

    @route("GET", _ONE, "Show a conversation", reply=Conversation, errors=_GONE)
    async def get_conversation(self, request: Request, conversation_id: str) -> Response:
        return json_response(await self._store.get(owner_of(request), conversation_id))

    @route("POST", _ONE, "Replace its metadata", body=ConversationUpdate, reply=Conversation, errors=_GONE)
    async def update_conversation(self, request: Request, conversation_id: str) -> Response:
        body = await read_body(request, ConversationUpdate, {})
        return json_response(await self._store.update(owner_of(request), conversation_id, body.metadata or {}))

    @route("DELETE", _ONE, "Delete a conversation", reply=DeletedConversation, errors=_GONE)
    async def delete_conversation(self, request: Request, conversation_id: str) -> Response:
        await self._store.delete(owner_of(request), conversation_id)
        return json_response(DeletedConversation(conversation_id))

    @route("POST", f"{_ONE}/items", "Add items", body=NewItems, reply=ItemList, errors=_GONE)
    async def add_items(self, request: Request, conversation_id: str) -> Response:
        body = await read_body(request, NewItems, {})
        added = await self._store.add(owner_of(request), conversation_id, _new_items(body.items))
        return json_response(item_list(added, has_more=False))

    @route("GET", f"{_ONE}/items", "List its items", reply=ItemList, errors=_GONE, parameters=PAGE)
    async def list_items(self, request: Request, conversation_id: str) -> Response:
        items, more = await self._store.page(owner_of(request), conversation_id, page_of(request))
        return json_response(item_list(items, has_more=more))

    @route("GET", _ITEM, "Show an item", reply=Item, errors=_GONE)
    async def get_item(self, request: Request, conversation_id: str, item_id: str) -> Response:
        return json_response(await self._store.item(owner_of(request), conversation_id, item_id))

    @route("DELETE", _ITEM, "Delete an item", reply=Conversation, errors=_GONE)
    async def delete_item(self, request: Request, conversation_id: str, item_id: str) -> Response:
        return json_response(await self._store.delete_item(owner_of(request), conversation_id, item_id))


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
