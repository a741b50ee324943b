"""Runs the lines of a file through the app, a bounded number at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from octavo.errors import EngineDead
from octavo.server.batch.inside import Inside, Reply
from octavo.server.batch.journal import Journal
from octavo.server.batch.lines import AnyLine, BadLine, Line, LineReader

logger = logging.getLogger("octavo.batch")

SYNC_SECONDS = 1.0
"""How much work a power failure may undo."""

_BUSY, _AWAY = 429, 503
_LONGEST_PAUSE = 30.0


class LineRunner:
    """One run over the lines that ``journal`` does not have yet.

    ``slots`` bounds the lines in flight, of all runs that share it. ``changed`` is called when a line has ended.
    """

    def __init__(
        self,
        reader: LineReader,
        journal: Journal,
        inside: Inside,
        slots: asyncio.Semaphore,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._journal = journal
        self._inside = inside
        self._slots = slots
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()
        self._stop = False
        self._fault: BaseException | None = None

    @property
    def running(self) -> int:
        """Lines in flight."""
        return len(self._running)

    def stop(self) -> None:
        """Begin no further line; `run` returns when those that run have ended."""
        self._stop = True

    async def run(self) -> bool:
        """Run what is left. True if all lines are finished, False after `stop`.

        Cancelling it ends the lines that run; they are not finished then, and a later run takes them up. Raises
        EngineDead, and ConfigError if the journal cannot be written.
        """
        syncing = asyncio.create_task(self._sync_often())
        try:
            finished = await self._feed()
            while self._running and self._fault is None:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            if self._fault is not None:
                raise self._fault
            return finished
        finally:
            syncing.cancel()
            for task in self._running:
                task.cancel()
            await asyncio.gather(syncing, *self._running, return_exceptions=True)
            await self._journal.sync()

    async def refuse_rest(self, code: str, message: str) -> None:
        """Make an error of every line that is left."""
        while lines := await asyncio.to_thread(self._reader.read):
            for line in lines:
                if line not in self._journal:
                    bad = line if isinstance(line, BadLine) else BadLine(line.number, line.custom_id, code, message)
                    self._journal.refuse(bad)
        await self._journal.sync()

    async def _feed(self) -> bool:
        while lines := await asyncio.to_thread(self._reader.read):
            for line in lines:
                if line not in self._journal and not await self._begin(line):
                    return False
        return True

    async def _begin(self, line: AnyLine) -> bool:
        """Begin a line, or refuse it. False: no more."""
        if self._over():
            return False
        if isinstance(line, BadLine):
            self._journal.refuse(line)
            self._changed()
            return True
        await self._slots.acquire()
        if self._over():
            self._slots.release()
            return False
        task = asyncio.create_task(self._run_line(line))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return True

    def _over(self) -> bool:
        return self._stop or self._fault is not None

    async def _run_line(self, line: Line) -> None:
        self._journal.answer(line, await self._ask(line))
        self._changed()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = self._fault or error

    async def _ask(self, line: Line) -> Reply:
        """The answer to a line, when the server has room for it."""
        tries = 0
        while True:
            reply = await self._inside.post(line.url, line.body, self._journal.id_of(line))
            if reply.status not in (_BUSY, _AWAY):
                return reply
            if reply.status == _AWAY and (await self._inside.get("/health")).status == _AWAY:
                raise EngineDead("the engine has stopped; the lines that are not finished were not run")
            tries += 1
            if tries == 20:
                logger.warning("line %d: the server has been too busy for it %d times; it goes on", line.number, tries)
            await asyncio.sleep(_pause(reply, tries))

    async def _sync_often(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            with contextlib.suppress(OSError):  # the last one, in `run`, tells
                await self._journal.sync()


def _pause(reply: Reply, tries: int) -> float:
    """Seconds until the next try: what the server says, and longer each time."""
    told = reply.headers.get("retry-after", "")
    least = float(told) if told.isdecimal() else 0.1
    return min(max(least, 0.1 * 2.0 ** min(tries, 10)), _LONGEST_PAUSE)
