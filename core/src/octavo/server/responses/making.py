"""Making a response that somebody waits for: as a stream of events, or whole. See `background` for the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sqlalchemy import Connection

from octavo.server.generation.logprobs import TokenNames
from octavo.server.responses.job import ResponseJob, Stores
from octavo.server.responses.replies import Event, ResponseObject, response_usage
from octavo.server.responses.writer import Writer
from octavo.server.transport.errors import failure_of
from octavo.server.transport.sse import event


def encoded(events: list[Event]) -> bytes:
    """Events as they are sent."""
    return b"".join(event(one, one.type) for one in events)


def writer_of(job: ResponseJob, names: TokenNames) -> Writer:
    """The writer of a job."""
    return Writer(job.response, names, job.style)


async def made(job: ResponseJob, writer: Writer) -> AsyncGenerator[list[Event], None]:
    """Run the turn. The first events are empty: the engine has accepted the turn and begun. At the end the writer's
    response is settled, and only `Writer.end` is left.
    """
    reason = None
    begun = False
    async with job.turn.running() as stream:
        async for item in stream:
            pieces = job.turn.take(item)
            if not begun:
                begun = True
                yield []
            for piece in pieces:
                reason = piece.finish_reason or reason
                events = writer.push(piece)
                if events:
                    yield events
    yield writer.finish(reason, response_usage(job.turn.usage))


async def streamed(job: ResponseJob, names: TokenNames, stores: Stores, request_id: str) -> AsyncGenerator[bytes, None]:
    """The response as it comes. Raises what goes wrong before the first token; what goes wrong later is a
    ``response.failed``. The last event is sent when the response is stored.
    """
    writer = writer_of(job, names)
    begun = False
    try:
        async with aclosing(made(job, writer)) as stream:
            async for events in stream:
                if not begun:
                    events = writer.lifecycle("created", "in_progress", status="in_progress") + events
                    begun = True
                if events:
                    yield encoded(events)
    except Exception as error:
        if not begun:
            raise
        writer.fail(failure_of(error, request_id), response_usage(job.turn.usage))
    try:
        await keep(job, writer.response, stores)
    except Exception as error:  # noqa: BLE001 - the status is sent, so the client learns of it from an event
        failure = failure_of(error, request_id)
        yield encoded([writer.error(failure.code, failure.message, failure.param)])
    else:
        yield encoded([writer.end()])


async def whole(job: ResponseJob, names: TokenNames, stores: Stores) -> ResponseObject:
    """The response when it is finished and stored."""
    writer = writer_of(job, names)
    async with aclosing(made(job, writer)) as stream:
        async for _ in stream:
            pass
    await keep(job, writer.response, stores)
    return writer.response


async def keep(job: ResponseJob, response: ResponseObject, stores: Stores) -> None:
    """Store a response that has ended, and add the turn to its conversation: both, or neither."""

    def work(connection: Connection) -> tuple[None, int]:
        added = converse(connection, job, response, stores)
        if response.store:
            added += stores.responses.add(connection, job.owner, response, job.inputs)
        return None, added

    if response.store or response.conversation is not None:
        await stores.responses.write(work)


def converse(connection: Connection, job: ResponseJob, response: ResponseObject, stores: Stores) -> int:
    """Add the turn to its conversation, if it has one and got an answer; returns the size."""
    if response.conversation is None or response.status not in ("completed", "incomplete"):
        return 0
    items = [*job.inputs, *response.output]
    return stores.conversations.append(connection, job.owner, response.conversation.id, items)[1]
