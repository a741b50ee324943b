"""/v1/responses and what is under it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.server.generation.params import served_name
from octavo.server.generation.service import Service, json_response
from octavo.server.responses.background import Background, replayed
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.conversations import ConversationsApi
from octavo.server.responses.items import new_id
from octavo.server.responses.job import Stores, job_of, turn_of
from octavo.server.responses.making import streamed, whole
from octavo.server.responses.params import response_params
from octavo.server.responses.queries import PAGE, page_of, starting_after
from octavo.server.responses.replies import DeletedResponse, Event, InputTokens, ItemList, ResponseObject, item_list
from octavo.server.responses.retention import Retention
from octavo.server.responses.schema import ResponseRequest, TurnFields
from octavo.server.responses.store import ResponseStore
from octavo.server.responses.tools import read_tools
from octavo.server.routing.failures import RESPONSES, TURN
from octavo.server.routing.route import Parameter, route
from octavo.server.transport.body import read_body
from octavo.server.transport.connection import while_connected
from octavo.server.transport.errors import Failure, request_id_of
from octavo.server.transport.fields import RESPONSES_UNSUPPORTED
from octavo.server.transport.owner import owner_of
from octavo.server.transport.queries import flag
from octavo.server.transport.sse import EventStream, event

_GONE = (404,)
_AGAIN = (
    Parameter("stream", "Its events from the beginning, if it was made to run in the background and to stream.",
              {"type": "boolean"}),
    Parameter("starting_after", "The number of the last event that the client has.", {"type": "integer", "minimum": 0}),
)  # fmt: skip


def responses_apis(service: Service) -> tuple[ResponsesApi, ConversationsApi]:
    """Both APIs, which share what they keep."""
    settings = service.settings
    retention = Retention(settings.responses_max_age * 86400, settings.responses_max_bytes)
    responses = ResponseStore(service.database, retention)
    stores = Stores(responses, ConversationStore(responses))
    return ResponsesApi(service, stores), ConversationsApi(stores.conversations)


class ResponsesApi:
    """The Responses API."""

    def __init__(self, service: Service, stores: Stores) -> None:
        self._service = service
        self._stores = stores
        self._background = Background(stores, service.names)
        service.on_close(self._background.close)

    @route(
        "POST", "/v1/responses", "Create a response",
        body=ResponseRequest, reply=ResponseObject, events=Event, errors=TURN, dialect=RESPONSES,
    )  # fmt: skip
    async def create_response(self, request: Request) -> Response:
        service, stores = self._service, self._stores
        body = await read_body(request, ResponseRequest, RESPONSES_UNSUPPORTED)
        job = await job_of(service, stores, owner_of(request), body)
        request_id = request_id_of(request)
        if body.background:
            live = await self._background.start(job, request_id)
            return _stream(live.follow(-1)) if body.stream else json_response(job.response)
        if body.stream:
            return _stream(streamed(job, service.names, stores, request_id))
        return json_response(await while_connected(request.receive, whole(job, service.names, stores)))

    @route(
        "POST", "/v1/responses/input_tokens", "Count the tokens of an input",
        body=TurnFields, reply=InputTokens, errors=_GONE,
    )  # fmt: skip
    async def count_input_tokens(self, request: Request) -> Response:
        service, stores = self._service, self._stores
        body = await read_body(request, TurnFields, RESPONSES_UNSUPPORTED)
        served_name(body.model, service.backend.model_names)
        params = response_params(body, service.backend.default_params)
        toolbox = read_tools(body.tools, body.tool_choice)
        owner, counted = owner_of(request), new_id("resp")
        turn, _ = await turn_of(service, stores, owner, body, params, toolbox, counted, over="truncate")
        return json_response(InputTokens(turn.job.prompt_tokens))

    @route("POST", "/v1/responses/compact", "Not served: always 400", successes=())
    async def compact(self, request: Request) -> Response:
        raise RequestError(
            "This server does not compact conversations; with 'truncation': \"auto\" a response leaves out the oldest "
            "items where the context is too short.",
            code="unsupported_endpoint",
        )

    @route(
        "GET", "/v1/responses/{response_id}", "Show a response",
        reply=ResponseObject, events=Event, errors=_GONE, dialect=RESPONSES, parameters=_AGAIN,
    )  # fmt: skip
    async def get_response(self, request: Request, response_id: str) -> Response:
        background, stores = self._background, self._stores
        if flag(request, "stream"):
            after = starting_after(request)
            return _stream(replayed(background, stores, owner_of(request), response_id, after))
        return json_response(await stores.responses.get(owner_of(request), response_id))

    @route(
        "DELETE", "/v1/responses/{response_id}", "Delete a response, which ends it",
        reply=DeletedResponse, errors=_GONE,
    )  # fmt: skip
    async def delete_response(self, request: Request, response_id: str) -> Response:
        await self._background.delete(owner_of(request), response_id)
        return json_response(DeletedResponse(response_id))

    @route(
        "POST", "/v1/responses/{response_id}/cancel", "End a background response",
        reply=ResponseObject, errors=_GONE,
    )  # fmt: skip
    async def cancel_response(self, request: Request, response_id: str) -> Response:
        return json_response(await self._background.cancel(owner_of(request), response_id))

    @route(
        "GET", "/v1/responses/{response_id}/input_items", "List its input",
        reply=ItemList, errors=_GONE, parameters=PAGE,
    )  # fmt: skip
    async def list_input_items(self, request: Request, response_id: str) -> Response:
        items, more = await self._stores.responses.inputs(owner_of(request), response_id, page_of(request))
        return json_response(item_list(items, has_more=more))


def _stream(events: AsyncGenerator[bytes, None]) -> EventStream:
    return EventStream(events, last=b"", fail=_error)


def _error(failure: Failure) -> bytes:
    # Its number would be one that the failed stream had given already; no client counts on after an error.
    error = Event(type="error", sequence_number=0, code=failure.code, message=failure.message, param=failure.param)
    return event(error, "error")
