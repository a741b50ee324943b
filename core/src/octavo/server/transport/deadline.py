"""A request's time, and what becomes of it when it is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Scope

from octavo.server.transport.errors import TimeIsUp

_EXPIRED = "octavo.expired"


@asynccontextmanager
async def in_time(seconds: float, scope: Scope) -> AsyncIterator[None]:
    """The block, for ``seconds`` at most; 0 is for ever. Then the task is cancelled within it.

    Raises TimeIsUp, unless the block has put an end to its answer in its own way, see `expired`.
    """
    if not seconds:
        yield
        return
    task = asyncio.current_task()
    assert task is not None

    def expire() -> None:
        scope[_EXPIRED] = TimeIsUp(
            f"The request did not finish within {seconds:g} s, the limit of this server (request_seconds); "
            "ask for fewer tokens."
        )
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        error = expired(scope)
        if error is None:
            raise
        raise error from None
    finally:
        timer.cancel()


def expired(scope: Scope) -> TimeIsUp | None:
    """For whoever catches CancelledError: if it came because the time is up, why; the cancellation is then over, and
    whoever asked goes on. ``None``: somebody else cancels, and the error must be raised again.
    """
    error: TimeIsUp | None = scope.get(_EXPIRED)
    if error is not None:
        # From Python 3.11 on a task counts how often it was cancelled.
        task: Any = asyncio.current_task()
        if hasattr(task, "uncancel") and task.cancelling():
            task.uncancel()
    return error
