"""Runs the batches of the Batches API, a few at a time, and takes up those that an earlier process has left.

    validating -> in_progress -> finalizing -> completed
               -> failed      -> finalizing -> expired
    validating, in_progress   -> cancelling -> cancelled

Whatever a batch has come to stands in its row, and every line it has finished in its journal, before the next step
begins. A process that is killed at any point leaves something to go on from, and no line to run twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError, EngineDead
from octavo.server.batch.file_store import FileStore, outputs_of
from octavo.server.batch.inside import Inside, endpoints_of
from octavo.server.batch.journal import Journal
from octavo.server.batch.lines import BadLine, LineReader, Rules
from octavo.server.batch.runner import LineRunner
from octavo.server.batch.store import Batch, BatchError, BatchStore, errors_text, usage_text
from octavo.server.generation.service import Service

logger = logging.getLogger("octavo.batch")

AT_ONCE = 4
"""Batches that run at the same time; the others are ``validating`` until it is their turn."""

SHOWN_ERRORS = 100
"""Errors of lines that a batch shows itself; all of them are in its error file."""

TICK_SECONDS = 1.0
SWEEP_SECONDS = 60.0


@dataclass
class _Found:
    """What the validation of a file brings."""

    total: int = 0
    good: int = 0
    errors: tuple[BatchError, ...] = ()


class Batches:
    """The batches that this process runs. ``clock`` is Unix time."""

    def __init__(
        self, service: Service, files: FileStore, store: BatchStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self._files = files
        self._store = store
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._runners: dict[str, LineRunner] = {}
        self._waiting: set[str] = set()  # for their turn
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._slots = asyncio.Semaphore(service.settings.batch_lines_in_flight)
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self, id: str, *, turn: bool = True) -> None:
        """Run a batch when it is its ``turn``, unless this process does already."""
        if id not in self._running and not self._closed:
            task = self._running[id] = asyncio.create_task(self._run_in_turn(id) if turn else self._run(id))
            task.add_done_callback(lambda task: self._forget(id, task))

    def _forget(self, id: str, task: asyncio.Task[None]) -> None:
        if self._running.get(id) is task:
            del self._running[id]

    def cancelled(self, id: str) -> None:
        """A batch has become ``cancelling``: begin no more lines of it."""
        if id in self._runners:
            self._runners[id].stop()
        elif id in self._waiting:  # nothing runs, so it need not wait to end
            self._running.pop(id).cancel()
        self.begin(id, turn=False)

    def now(self) -> int:
        """Unix time, as batches show it."""
        return int(self._clock())

    async def start(self) -> None:
        """Take up what was left, now and whenever another process lets go of one; remove what has expired."""
        self._sweeping = asyncio.create_task(self._sweep_often())

    async def close(self) -> None:
        """Let go of all batches; another process takes them up."""
        self._closed = True
        tasks = [*self._running.values(), *([self._sweeping] if self._sweeping is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _sweep_often(self) -> None:
        while True:
            try:
                for batch_id in await self._store.unfinished():
                    self.begin(batch_id)
                await self._files.sweep()
            except Exception:  # whatever a database or a disk raises: the next sweep may find it well again
                logger.exception("batches cannot be looked after")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _run_in_turn(self, id: str) -> None:
        self._waiting.add(id)
        try:
            await self._turns.acquire()
        finally:
            self._waiting.discard(id)
        try:
            await self._run(id)
        finally:
            self._turns.release()

    async def _run(self, id: str) -> None:
        try:
            try:
                await self._advance(id)
            except (EngineDead, ConfigError):
                raise
            except Exception:  # the batch's own: it is told so, and the others go on
                logger.exception("batch %s failed", id)
                problem = BatchError("server_error", "The server failed on this batch; its log has the reason.")
                await self._store.set(id, outcome="failed", errors=errors_text([problem]))
                await self._finish(await self._store.find(id))
        except Exception as error:  # noqa: BLE001 - it stands as it stood; the next sweep tries again
            logger.error("batch %s waits: %s", id, error)  # noqa: TRY400

    async def _advance(self, id: str) -> None:
        """From wherever a batch is to its end."""
        batch = await self._store.find(id)
        if batch.outcome is None:
            if batch.shown.status == "validating" and not await self._validate(batch):
                return
            journal = await asyncio.to_thread(Journal, *self._journals(id), id.removeprefix("batch_"))
            try:
                outcome = await self._run_lines(batch, journal)
                await self._keep(id, journal)
            finally:
                journal.close()
            # One that is cancelled ends as cancelled, whatever else has come about.
            if not await self._store.move(
                id, "finalizing", self.now(), only_from=("validating", "in_progress"), outcome=outcome
            ):
                await self._store.set(id, outcome="cancelled")
            batch = await self._store.find(id)
        await self._finish(batch)

    def _journals(self, id: str) -> tuple[Path, Path]:
        return self._files.batches / f"{id}.answers", self._files.batches / f"{id}.errors"

    async def _validate(self, batch: Batch) -> bool:
        """Look at every line. False if there is nothing to run."""
        batch_id = batch.shown.id
        found = await self._look(batch)
        most = self._service.settings.limits.batch_lines
        if found is None:
            problem = [BatchError("input_file_missing", "The input file is not there any more.", "input_file_id")]
        elif found.total > most:
            problem = [
                BatchError("too_many_lines", f"The file has more than {most} lines; make several batches of it.")
            ]
        elif not found.total:
            problem = [BatchError("empty_file", "The file has no lines.", "input_file_id")]
        elif not found.good:
            problem = list(found.errors)
        else:
            values = {"total": found.total, "errors": errors_text(found.errors)}
            await self._store.set(batch_id, **values)
            await self._store.move(batch_id, "in_progress", self.now(), only_from=("validating",))
            return True
        values = {"total": found.total if found is not None else 0, "errors": errors_text(problem)}
        states = ("validating", "cancelling")
        await self._store.move(batch_id, "failed", self.now(), only_from=states, **values)
        return False

    async def _look(self, batch: Batch) -> _Found | None:
        try:
            reader = self._reader(batch)
        except FileNotFoundError:
            return None
        found = _Found()
        try:
            while found.total <= self._service.settings.limits.batch_lines and (
                lines := await asyncio.to_thread(reader.read)
            ):
                bad = [BatchError.of(line) for line in lines if isinstance(line, BadLine)]
                found.total += len(lines)
                found.good += len(lines) - len(bad)
                found.errors = (*found.errors, *bad)[:SHOWN_ERRORS]
        finally:
            reader.close()
        return found

    def _reader(self, batch: Batch) -> LineReader:
        settings = self._service.settings
        rules = Rules(
            endpoints_of(self._service.app),
            endpoint=batch.shown.endpoint,
            max_body_bytes=settings.limits.body_bytes,
            priority=settings.batch_priority,
            keep=True,
        )
        return LineReader(self._files.path(batch.shown.input_file_id).open("rb"), rules)

    async def _run_lines(self, batch: Batch, journal: Journal) -> str:
        """Run what is left; returns what the batch ends as."""
        batch_id = batch.shown.id
        reader = self._reader(batch)
        runner = LineRunner(reader, journal, Inside(self._service.app, batch.owner), self._slots)
        if await self._keep(batch_id, journal) == "cancelling":
            runner.stop()
        self._runners[batch_id] = runner
        running = asyncio.create_task(runner.run())
        try:
            while not running.done():
                if await self._keep(batch_id, journal) == "cancelling":
                    runner.stop()
                if self._clock() >= batch.shown.expires_at:
                    break
                await asyncio.wait([running], timeout=TICK_SECONDS)
            if running.done():
                return "completed" if running.result() else "cancelled"
        finally:
            del self._runners[batch_id]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            reader.close()
        await self._expire(batch, journal)
        return "expired"

    async def _expire(self, batch: Batch, journal: Journal) -> None:
        """Make errors of the lines that are not finished."""
        reader = self._reader(batch)
        try:
            runner = LineRunner(reader, journal, Inside(self._service.app), self._slots)
            message = "This request was not run before the batch expired."
            await runner.refuse_rest("batch_expired", message)
        finally:
            reader.close()

    async def _keep(self, id: str, journal: Journal) -> str:
        """Note in the row how far a batch is; returns its status, which another process may have changed."""
        tokens = journal.tokens
        return await self._store.set(
            id,
            completed=journal.answered,
            failed=journal.failed,
            usage=usage_text(tokens.input, tokens.cached, tokens.output, tokens.reasoning),
        )

    async def _finish(self, batch: Batch) -> None:
        """Make files of what there is, and give the batch its last status."""
        batch_id, owner, seconds = batch.shown.id, batch.owner, batch.output_seconds
        (answers, errors), (output_id, error_id) = self._journals(batch_id), outputs_of(batch_id)
        output = await self._files.adopt(output_id, owner, f"{batch_id}_output.jsonl", answers, seconds)
        error = await self._files.adopt(error_id, owner, f"{batch_id}_error.jsonl", errors, seconds)
        assert batch.outcome is not None
        states = ("validating", "in_progress", "finalizing", "cancelling")
        await self._store.move(
            batch_id, batch.outcome, self.now(), only_from=states, output_file_id=output, error_file_id=error
        )
