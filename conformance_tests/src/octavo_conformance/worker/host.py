"""The judge's end of a worker: start it, ask it, and tell apart what the candidate did from what the suite did."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from octavo_conformance.worker import wire


class CandidateRaised(Exception):
    """The plugin raised an exception.

    ``stage`` is the member of the contract that was called, ``types`` the names of the exception's classes from its
    own on up, ``feature`` what an UnsupportedFeature names.
    """

    def __init__(self, frame: Mapping[str, Any]) -> None:
        self.stage, self.types = str(frame["stage"]), tuple(map(str, frame["types"]))
        self.message, self.feature, self.trace = str(frame["message"]), str(frame["feature"]), str(frame["trace"])
        super().__init__(f"{self.stage} raised {self.types[0]}: {self.message}")


class CandidateDied(Exception):
    """The worker process ended while it ran the plugin: a crash. ``output`` is the end of what it wrote."""

    def __init__(self, doing: str, returncode: int | None, output: str) -> None:
        super().__init__(f"the process died (exit status {returncode}) in {doing}")
        self.output = output


class CandidateHung(Exception):
    """No answer within the time allowed; the process was killed."""


class HarnessBroke(Exception):
    """The suite's own code failed in the worker."""


class Worker:
    """One process that has the plugin loaded. It answers one question at a time; after a death or a hang it is gone."""

    def __init__(
        self, platform: str, *, mutant: str = "", timeout: float = 300.0, environment: Mapping[str, str] = {}
    ) -> None:
        self._timeout = timeout
        self.mutant = mutant
        self._made = (platform, environment)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "octavo_conformance.worker.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        try:
            self.description: dict[str, Any] = self.ask("begin", platform=platform, mutant=mutant)
        except BaseException:
            self.close()
            raise

    def ask(self, what: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """Send a request and wait. Raises CandidateRaised, CandidateDied, CandidateHung or HarnessBroke."""
        assert self._process.stdin is not None and self._process.stdout is not None
        limit = self._timeout if seconds is None else seconds
        expired = threading.Event()

        def kill() -> None:
            expired.set()
            self._process.kill()

        watchdog = threading.Timer(limit, kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            wire.send(self._process.stdin, {"ask": what, **arguments})
            answer = wire.receive(self._process.stdout)
        except (EOFError, OSError) as error:
            returncode = self._process.wait()
            if expired.is_set():
                raise CandidateHung(f"no answer to {what} within {limit:g} seconds; the process was killed") from error
            raise CandidateDied(what, returncode, self.output()) from error
        finally:
            watchdog.cancel()
        if "raised" in answer:
            raise CandidateRaised(answer["raised"])
        if "broken" in answer:
            raise HarnessBroke(answer["broken"])
        return answer["ok"]

    def another(self) -> Worker:
        """One more process like this one."""
        platform, environment = self._made
        return Worker(platform, mutant=self.mutant, timeout=self._timeout, environment=environment)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def output(self) -> str:
        """The last of what the process wrote to its standard streams."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4000))
        return self._errors.read().decode(errors="replace")

    def close(self) -> None:
        """End the process, at first by closing the wire. Idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):  # it died with something unread
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
