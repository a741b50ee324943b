"""One run of a batch file: what is there already, the lines that are left, what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from octavo.cli.run_batch.places import Place
from octavo.cli.run_batch.progress import Show, Standing
from octavo.errors import ConfigError
from octavo.server.app import create_app
from octavo.server.batch.inside import Inside, endpoints_of
from octavo.server.batch.journal import Journal
from octavo.server.batch.lines import ENDPOINTS, LineReader, Rules, survey
from octavo.server.batch.runner import LineRunner
from octavo.server.generation.backend import Backend
from octavo.server.transport.settings import ServerSettings

LINES_PER_SEQUENCE = 2
"""Lines in flight for each sequence that can run: one that ends leaves its row to another in the next step."""


@dataclass(frozen=True)
class Files:
    """What a run reads and writes."""

    input: Place
    answers: Place
    errors: Place

    def check(self) -> None:
        """Raise ConfigError if two of them are one."""
        names = {"the input": self.input, "the output": self.answers, "the error file": self.errors}
        seen: dict[str, str] = {}
        for name, place in names.items():
            other = seen.setdefault(place.identity, name)
            if other != name:
                raise ConfigError(f"{place.url} is {other} and {name}; name two files (-o, --error-file)")


class Job:
    """Everything about a run but the engine, so that what is wrong with the files shows before a model is loaded.

    Raises ConfigError where a file cannot be used, or an output is there that is not this input's.
    """

    def __init__(self, files: Files, *, overwrite: bool = False, settings: ServerSettings | None = None) -> None:
        files.check()
        self.files = files
        self._settings = settings or ServerSettings()
        with files.input.open() as file:
            found = survey(file, self._rules(frozenset(ENDPOINTS)))
        if not found.lines:
            raise ConfigError(f"{files.input.url} has no lines")
        for place in (files.answers, files.errors):
            place.prepare(fresh=overwrite)
        self.total = found.lines
        self.journal = Journal(files.answers.written, files.errors.written, found.digest[:16])

    def _rules(self, endpoints: frozenset[str]) -> Rules:
        return Rules(endpoints, max_body_bytes=self._settings.limits.body_bytes)

    @property
    def standing(self) -> Standing:
        """How far it is."""
        journal = self.journal
        done = journal.answered + journal.failed
        return Standing(done, self.total, journal.failed, journal.tokens.input, journal.tokens.output)

    async def run(
        self, llm: Backend, lines: int, show: Show, say: Callable[[str], None], plugged: Sequence[object] = ()
    ) -> bool:
        """Run what is left through ``llm``, ``lines`` at a time. True if nothing is left, False if interrupted.

        The first SIGINT or SIGTERM lets the lines that run finish, the second ends them. ``plugged`` is what the
        ``octavo_models`` hook returned.
        """
        app = create_app(llm, replace(self._settings, plugged=plugged))
        reader = LineReader(self.files.input.open(), self._rules(endpoints_of(app)))
        slots = asyncio.Semaphore(lines)
        runner = LineRunner(reader, self.journal, Inside(app), slots, lambda: show(self.standing))
        try:
            running = asyncio.ensure_future(runner.run())
            with _signals(runner, running, say) as signals:
                try:
                    return await running
                except asyncio.CancelledError:
                    if signals.count < 2:  # not ours
                        raise
                    return False
        finally:
            await app.state.service.close()
            reader.close()

    def close(self) -> None:
        """Let go of the files, and upload what belongs elsewhere."""
        finished = self.standing.done == self.total
        self.journal.close()
        for place in (self.files.answers, self.files.errors):
            place.publish(finished=finished)


@dataclass
class _Signals:
    count: int = 0


@contextlib.contextmanager
def _signals(runner: LineRunner, running: asyncio.Future[bool], say: Callable[[str], None]) -> Iterator[_Signals]:
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)
    signals = _Signals()

    def stop() -> None:
        signals.count += 1
        if signals.count > 1:
            running.cancel()
            return
        say(f"Stopping: {runner.running} lines run to their end; again to end them now.")
        runner.stop()

    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield signals
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
