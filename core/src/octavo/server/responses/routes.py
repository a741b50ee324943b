"""/v1/responses and what is under it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response

from octavo.errors import RequestError
from octavo.server.transport.body import read_body
from octavo.server.transport.errors import Failure, request_id_of
from octavo.server.transport.fields import RESPONSES_UNBUILT
from octavo.server.transport.owner import owner_of
from octavo.server.generation.params import response_params, served_name
from octavo.server.transport.queries import flag
from octavo.server.responses import conversations
from octavo.server.responses.background import Background, replayed
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.items import new_id
from octavo.server.responses.making import streamed, whole
from octavo.server.responses.order import Stores, order_of, turn_of
from octavo.server.responses.queries import page_of, starting_after
from octavo.server.responses.replies import DeletedResponse, Event, InputTokens, item_list
from octavo.server.responses.retention import Retention
from octavo.server.responses.schema import ResponseRequest, TurnFields
from octavo.server.responses.store import ResponseStore
from octavo.server.responses.tools import read_tools
from octavo.server.generation.service import Service, json_response
from octavo.server.transport.sse import EventStream, event
from octavo.server.generation.streams import while_connected


def routes(service: Service) -> APIRouter:
    """The routes of the responses and conversations APIs."""
    settings = service.settings
    retention = Retention(settings.responses_max_age * 86400, settings.responses_max_bytes)
    responses = ResponseStore(service.database, retention)
    stores = Stores(responses, ConversationStore(responses))
    background = Background(stores, service.names)
    service.on_close(background.close)
    router = APIRouter()
    _making(router, service, stores, background)
    _kept(router, stores, background)
    conversations.add_routes(router, stores.conversations)
    return router


def _making(router: APIRouter, service: Service, stores: Stores, background: Background) -> None:
    @router.post("/v1/responses")
    async def create_response(request: Request) -> Response:
        body = await read_body(request, ResponseRequest, RESPONSES_UNBUILT)
        order = await order_of(service, stores, owner_of(request), body)
        request_id = request_id_of(request)
        if body.background:
            live = await background.start(order, request_id)
            return _stream(live.follow(-1)) if body.stream else json_response(order.response)
        if body.stream:
            return _stream(streamed(order, service.names, stores, request_id))
        return json_response(await while_connected(request.receive, whole(order, service.names, stores)))

    @router.post("/v1/responses/input_tokens")
    async def count_input_tokens(request: Request) -> Response:
        body = await read_body(request, TurnFields, RESPONSES_UNBUILT)
        served_name(body.model, service.backend.model_names)
        params = response_params(body, service.backend.default_params)
        toolbox = read_tools(body.tools, body.tool_choice)
        owner, counted = owner_of(request), new_id("resp")
        turn, _ = await turn_of(service, stores, owner, body, params, toolbox, counted, over="truncate")
        return json_response(InputTokens(turn.job.prompt_tokens))

    @router.post("/v1/responses/compact")
    async def compact(request: Request) -> Response:
        raise RequestError(
            "This server does not compact conversations; with 'truncation': \"auto\" a response leaves out the oldest "
            "items where the context is too short.",
            code="unsupported_endpoint",
        )


def _kept(router: APIRouter, stores: Stores, background: Background) -> None:
    @router.get("/v1/responses/{response_id}")
    async def get_response(response_id: str, request: Request) -> Response:
        if flag(request, "stream"):
            after = starting_after(request)
            return _stream(replayed(background, stores, owner_of(request), response_id, after))
        return json_response(await stores.responses.get(owner_of(request), response_id))

    @router.delete("/v1/responses/{response_id}")
    async def delete_response(response_id: str, request: Request) -> Response:
        await background.delete(owner_of(request), response_id)
        return json_response(DeletedResponse(response_id))

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel_response(response_id: str, request: Request) -> Response:
        return json_response(await background.cancel(owner_of(request), response_id))

    @router.get("/v1/responses/{response_id}/input_items")
    async def list_input_items(response_id: str, request: Request) -> Response:
        items, more = await stores.responses.inputs(owner_of(request), response_id, page_of(request))
        return json_response(item_list(items, has_more=more))


def _stream(events: AsyncGenerator[bytes, None]) -> EventStream:
    return EventStream(events, last=b"", fail=_error)


def _error(failure: Failure) -> bytes:
    # Its number would be one that the failed stream had given already; no client counts on after an error.
    error = Event(type="error", sequence_number=0, code=failure.code, message=failure.message, param=failure.param)
    return event(error, "error")
