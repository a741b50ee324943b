"""Many requests through one engine, a bounded number of them at a time.

What is not admitted yet is not even made, so that prompts may come from an iterator without end. Calls may be nested:
each step serves the requests of all that run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from octavo.engine.constraints import Constraints, NoConstraints
from octavo.engine.core import EngineCore
from octavo.engine.outputs import RequestDelta, RequestState, error_of
from octavo.errors import OctavoError, RequestFailed


class Entry(Protocol):
    """A request on its way."""

    @property
    def state(self) -> RequestState:
        """Its text side."""

    def add(self, delta: RequestDelta, /) -> None:
        """Keep what it gained."""


E = TypeVar("E", bound=Entry)


@dataclass
class _Call(Generic[E]):
    """One call of `OfflineLoop.run`."""

    live: dict[str, E] = field(default_factory=dict)
    """In the engine, by id."""
    over: deque[tuple[E, OctavoError | None]] = field(default_factory=deque)
    """Ended since the call last looked, each with what went wrong."""
    held: deque[E] = field(default_factory=deque)
    """Admitted and not yielded yet, in order."""
    done: set[str] = field(default_factory=set)
    """Those of them that have ended well."""


class OfflineLoop:
    """Admits at most ``most`` requests of a call to the engine at the same time; ``constraints`` prepares each."""

    def __init__(self, core: EngineCore, most: int, constraints: Constraints | NoConstraints) -> None:
        self._core = core
        self._most = most
        self._constraints = constraints
        self._calls: dict[str, _Call[Any]] = {}  # whose a request is

    def run(
        self, entries: Iterable[E], *, ahead: int | None = None, ended: Callable[[E], None] = lambda entry: None
    ) -> Iterator[E]:
        """Take the entries through the engine and yield them in order, each when it and all before it have finished.

        ``ahead`` bounds how many may be under way or held back for an earlier one. ``ended`` is told of each as soon
        as it ends. What ``entries`` raises, and the engine's RequestError for one of them, is raised in its turn,
        after all before it were yielded. RequestFailed is raised at once, and so is the RequestError of one that came
        to where no token may follow. Leaving early aborts what runs.
        """
        call: _Call[E] = _Call()
        source, fault = iter(entries), None
        try:
            while True:
                if fault is None:
                    fault = self._fill(call, source, ahead)
                while call.held and call.held[0].state.id in call.done:
                    call.done.remove(call.held[0].state.id)
                    yield call.held.popleft()
                if call.over:  # it may have come about in a step of another call
                    self._settle(call, ended)
                elif call.held:
                    self._step()
                elif isinstance(fault, StopIteration):
                    return
                elif fault is not None:
                    raise fault
        finally:
            for request_id in call.live:
                self._core.abort(request_id)
                del self._calls[request_id]

    def _fill(self, call: _Call[E], source: Iterator[E], ahead: int | None) -> Exception | None:
        """Admit what there is room for. Returns what ended the source, StopIteration for its end."""
        try:
            while len(call.live) < self._most and (ahead is None or len(call.held) < ahead):
                entry = next(source)
                self._admit(entry, call)
                call.held.append(entry)
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            return error
        return None

    def _settle(self, call: _Call[E], ended: Callable[[E], None]) -> None:
        while call.over:
            entry, why = call.over.popleft()
            if why is not None:
                raise RequestFailed(f"request {entry.state.id}: {why}") if isinstance(why, RequestFailed) else why
            call.done.add(entry.state.id)
            ended(entry)

    def _admit(self, entry: E, call: _Call[E]) -> None:
        state = entry.state
        params, constraint = self._constraints.prepare(state.params)
        self._core.add(state.id, state.prompt_token_ids, params, constraint=constraint)
        call.live[state.id] = entry
        self._calls[state.id] = call

    def _step(self) -> None:
        for event in self._core.step():
            call = self._calls.get(event.request_id)
            if call is None:  # it failed earlier in this step, and its other choices with it
                continue
            entry = call.live[event.request_id]
            delta = entry.state.update(event)
            if delta is None:
                continue
            if entry.state.stopped_by_text(delta, event):
                self._core.abort(event.request_id, None if delta.finished else event.index)
            if event.error is None:
                entry.add(delta)
            elif not delta.finished:
                self._core.abort(event.request_id)
            if delta.finished or event.error is not None:
                del self._calls[event.request_id], call.live[event.request_id]
                call.over.append((entry, error_of(event)))
