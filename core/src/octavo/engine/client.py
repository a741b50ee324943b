"""An engine in a thread of this process, and what passes between it and its front end: values only."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from octavo.engine.core import EngineCore
from octavo.engine.watchdog import Watchdog
from octavo.errors import EngineDead, EngineError, OctavoError, RequestError, RequestFailed
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.scheduler import SchedulerMetrics, TokenEvent
from octavo.step_plan import TokenConstraint

_logger = logging.getLogger(__name__)

_CLOSED = "the engine was closed"


@dataclass(frozen=True)
class EngineRequest:
    """One request, tokenised.

    ``id`` is unique among running requests. ``constraint`` is
    what ``params.structured`` was compiled to; it is no value, and a client whose engine is in another process has it
    compiled there.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    options: RequestOptions = DEFAULT_OPTIONS
    constraint: TokenConstraint | None = None


@dataclass(frozen=True)
class Refusal:
    """A request that was not taken: RequestError, or RequestFailed where an exception hit it."""

    request_id: str
    error: RequestError | EngineError


News: TypeAlias = TokenEvent | Refusal | EngineDead
"""What an engine tells its front end. Nothing follows EngineDead."""
Listener = Callable[[Sequence[News]], None]


@dataclass(frozen=True)
class _Abort:
    request_id: str
    index: int | None


@dataclass(frozen=True)
class _Metrics:
    answer: Future[SchedulerMetrics]


_Command: TypeAlias = EngineRequest | _Abort | _Metrics | None
"""None: stop."""


class InProcessClient:
    """Runs an `EngineCore` in a thread of this process.

    Calls return at once; all news comes to the listener, in order, from the engine's thread, a step's at a time.
    Commands come in through a queue between steps; the thread sleeps on it while there is no work. A step that takes
    more than ``step_timeout`` seconds ends the engine: everybody is told so, and the thread, which cannot be called
    back from the device, is left where it is. 0 waits for ever.
    """

    def __init__(self, core: EngineCore, step_timeout: float = 0.0) -> None:
        self._core = core
        self._inbox: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._dead: str | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        """Set when the thread has done its work, or was given up."""
        self._given_up = False
        self._telling = threading.Lock()
        """Held while the listener is told; what the engine's thread and the watchdog say must not cross."""
        self._step_timeout = step_timeout
        self._watchdog = Watchdog(step_timeout, lambda: core.on_device_since, self._give_up)
        self._listener: Listener = lambda news: None

    def start(self, listener: Listener) -> None:
        """Begin to serve; call once, first."""
        assert self._thread is None, "start() is called once"
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()
        self._watchdog.start()

    def add(self, request: EngineRequest) -> None:
        """Queue a request. Raises EngineDead."""
        if self._dead is not None:
            raise EngineDead(self._dead)
        self._inbox.put(request)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End a request, or one of its choices, and free its blocks; no event tells of it. Unknown ids are ignored."""
        self._inbox.put(_Abort(request_id, index))

    def metrics(self) -> Future[SchedulerMetrics]:
        """A snapshot, taken between two steps. The future raises EngineDead if the engine stops before that."""
        command = _Metrics(Future())
        if self._thread is None:
            command.answer.set_result(self._core.metrics())
            return command.answer
        self._inbox.put(command)
        if self._dead is not None:  # the thread may have looked into the inbox for the last time
            self._refuse_metrics()
        return command.answer

    def health(self) -> str | None:
        """``None`` while the engine serves, else why it does not."""
        return self._dead

    def close(self) -> None:
        """Stop the engine and free its device. Requests that still run end with no event.

        A device that does not come back is left alone: nothing may be asked of it while a step is on it.
        """
        if self._thread is not None:
            self._inbox.put(None)
            self._over.wait()
            self._watchdog.stop()
            if not self._given_up:
                self._thread.join()
        self._dead = self._dead or _CLOSED
        if self._thread is None or not self._thread.is_alive():
            self._core.close()

    def _run(self) -> None:
        try:
            while self._take_commands():
                events = self._core.step()
                if events:
                    now = time.monotonic()
                    for event in events:
                        event.left_engine = now
                    self._tell(events)
        except Exception as error:  # noqa: BLE001 - the last resort of the engine's thread: whoever waits must hear of it
            self._die(f"{type(error).__name__}: {error}" if not isinstance(error, OctavoError) else str(error))
        finally:
            self._dead = self._dead or _CLOSED
            self._refuse_metrics()
            self._over.set()

    def _give_up(self) -> None:
        """Called by the watchdog's thread."""
        self._given_up = True
        self._die(
            f"the device has not come back from a step for {self._step_timeout:g} s (--step-timeout); "
            "restart the server, and look at the device"
        )
        self._refuse_metrics()
        self._over.set()

    def _tell(self, news: Sequence[News]) -> None:
        """Tell the listener, unless the engine is dead: nothing follows that."""
        with self._telling:
            if self._dead is None:
                self._listener(news)

    def _die(self, why: str) -> None:
        with self._telling:
            if self._dead is None:
                self._dead = why
                _logger.error("the engine has stopped: %s", why)
                self._listener([EngineDead(why)])

    def _refuse_metrics(self) -> None:
        """Answer what is left in the inbox of a dead engine; only metrics wait for an answer."""
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, _Metrics) and command.answer.set_running_or_notify_cancel():
                command.answer.set_exception(EngineDead(self._dead or _CLOSED))

    def _take_commands(self) -> bool:
        """Obey what has come in; wait for more if there is nothing to do. False: stop."""
        refused: list[Refusal] = []
        goes_on = self._dead is None  # it may have been given up, and come back after all
        while goes_on and (not self._inbox.empty() or not self._core.has_work):
            if refused and self._inbox.empty():  # about to sleep: what is known goes out first
                break
            goes_on = self._obey(self._inbox.get(), refused)
        if refused:
            self._tell(refused)
        return goes_on

    def _obey(self, command: _Command, refused: list[Refusal]) -> bool:
        match command:
            case None:
                return False
            case _Abort(request_id, index):
                self._core.abort(request_id, index)
            case _Metrics(answer):
                if answer.set_running_or_notify_cancel():
                    answer.set_result(self._core.metrics())
            case EngineRequest():
                try:
                    self._core.add(
                        command.id,
                        command.prompt_token_ids,
                        command.params,
                        command.options,
                        command.constraint,
                    )
                except RequestError as error:
                    refused.append(Refusal(command.id, error))
                except Exception as error:  # this request's own: its neighbours go on
                    _logger.exception("request %s could not be added", command.id)
                    refused.append(Refusal(command.id, RequestFailed(f"{type(error).__name__}: {error}")))
        return True
