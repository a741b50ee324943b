"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.sampling import SamplingParams
from octavo.server.generation.params import message_params, served_name
from octavo.server.generation.service import Service, json_response
from octavo.server.generation.turn import Turn
from octavo.server.messages.replies import Event, Message, TokensCount
from octavo.server.messages.schema import UNSUPPORTED, CountRequest, MessagesRequest
from octavo.server.messages.turn_request import message_ask, read_thinking
from octavo.server.messages.writer import MessageWriter
from octavo.server.routing.failures import ANTHROPIC, MODEL, TURN
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body
from octavo.server.transport.connection import while_connected
from octavo.server.transport.errors import Failure, request_id_of
from octavo.server.transport.sse import EventStream, event


class MessagesApi:
    """The Messages API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route(
        "POST", "/v1/messages", "Answer a conversation",
        body=MessagesRequest, reply=Message, events=Event, errors=TURN, dialect=ANTHROPIC,
    )  # fmt: skip
    async def create_message(self, request: Request) -> Response:
        service, backend = self._service, self._service.backend
        body = await read_body(request, MessagesRequest, UNSUPPORTED)
        model = served_name(body.model, backend.model_names)
        params = message_params(body, body.max_tokens, body.stop_sequences, backend.default_params)
        message_id = f"msg_{body.request_id or request_id_of(request)}"
        # An output limit beyond the context is none: agents always ask for the most that some larger model can write.
        turn = await Turn.prepare(service, message_ask(body, params), message_id)
        writer = MessageWriter(turn, message_id, model, body.max_tokens, read_thinking(body.thinking))
        if not body.stream:
            return _named(request, json_response(await while_connected(request.receive, writer.whole())))

        def fail(failure: Failure) -> bytes:
            return event(failure.anthropic_body(request_id_of(request)), "error")

        return _named(request, EventStream(writer.events(), last=b"", fail=fail))

    @route(
        "POST", "/v1/messages/count_tokens", "Count the tokens of a prompt",
        body=CountRequest, reply=TokensCount, errors=MODEL, dialect=ANTHROPIC,
    )  # fmt: skip
    async def count_tokens(self, request: Request) -> Response:
        service, backend = self._service, self._service.backend
        body = await read_body(request, CountRequest, UNSUPPORTED)
        served_name(body.model, backend.model_names)
        turn = await Turn.prepare(service, message_ask(body, SamplingParams()), request_id_of(request))
        return _named(request, json_response(TokensCount(turn.job.prompt_tokens)))


def _named(request: Request, response: Response) -> Response:
    """With the request's id where Anthropic's clients look for it."""
    response.headers["request-id"] = request_id_of(request)
    return response
