"""Stop strings in a stream of text, wherever the pieces of text happen to be cut.

The rule: the stop string that is *complete first* ends the text, for that is when generation can stop. If several are
complete at the same character, the longest counts, so that no beginning of it is left in the text. With stops "b" and
"abc", "abc" ends at "b"; with "bc" and "abc" it ends at "abc". The rule speaks of characters (code points, no
normalisation), not of tokens or chunks, so neither changes the result.

Method: Aho and Corasick 1975. The automaton's state after a character is the longest end of the text that is the
beginning of a stop string: exactly the part that has to be held back. Constant time for each character, whatever the
number and length of the stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from octavo.errors import RequestError


class _State:
    """A beginning of one or more stop strings, `depth` characters long.

    `next` leads on by one character; `fallback` is the longest proper end of this one that is a state too; `stop` is
    the longest stop string that ends here.
    """

    __slots__ = ("depth", "fallback", "next", "stop")

    def __init__(self, depth: int, root: _State | None) -> None:
        self.depth = depth
        self.next: dict[str, _State] = {}
        self.fallback = root
        self.stop: str | None = None


class StopStrings:
    """Watches one sequence's text for `stops`.

    With `include` the stop string itself is part of the text. Raises RequestError(param="stop") for an empty stop.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        if "" in stops:
            raise RequestError("stop holds an empty string, which every text contains; remove it", param="stop")
        self._include = include
        self._root = _automaton(stops)
        self._state = self._root
        self._held = ""
        self._matched: str | None = None

    def again(self) -> StopStrings:
        """A watch for the same stops over another text. What was built for them is shared."""
        other = StopStrings((), include=self._include)
        other._root = other._state = self._root
        return other

    def push(self, text: str, *, early: bool = False, last: bool = False) -> tuple[str, str | None]:
        """More text; returns what is safe to show now, and the stop string that ended it, if one has.

        ``early``: a stop string that this text completes does not count, as the sequence has to go on. ``last``:
        nothing follows. Otherwise the longest end is held back that may still become a stop string. After a match
        nothing is returned any more.
        """
        if self._matched is not None:
            return "", self._matched
        if not self._root.next:
            return text, None
        state = self._state
        whole = self._held + text
        for at, character in enumerate(text, start=len(self._held) + 1):
            state = self._step(state, character)
            if state.stop is not None and not early:
                self._matched, self._held = state.stop, ""
                return whole[: at if self._include else at - len(state.stop)], state.stop
        self._state = self._root if last else state
        safe = len(whole) - self._state.depth
        self._held = whole[safe:]
        return whole[:safe], None

    def finish(self) -> str:
        """What is held back, when no more text comes: it did not become a stop string."""
        held, self._held, self._state = self._held, "", self._root
        return held

    def _step(self, state: _State, character: str) -> _State:
        while True:
            onward = state.next.get(character)
            if onward is not None:
                return onward
            if state.fallback is None:
                return state
            state = state.fallback


class AnswerStops:
    """Watches the answer for stop strings, and lets reasoning between ``marks`` (its beginning and its end) pass.

    ``inside``: the text begins in the midst of reasoning. A stop string lies within one stretch of the answer: the
    marks are no part of it, and stop nothing.
    """

    def __init__(self, stops: StopStrings, marks: tuple[str, str], *, inside: bool) -> None:
        self._stops = stops
        self._marks = marks
        self._inside = inside
        self._held = ""
        """The end of the text where it may be the beginning of a mark."""

    def push(self, text: str, *, early: bool = False, last: bool = False) -> tuple[str, str | None]:
        """See `StopStrings.push`."""
        shown: list[str] = []
        text = self._held + text
        while True:
            mark = self._marks[self._inside]
            before, found, after = text.partition(mark)
            held = 0 if found or last else _overlap(before, mark)
            text, self._held = before[: len(before) - held], before[len(before) - held :]
            if not self._inside:
                text, stop = self._stops.push(text, early=early, last=bool(found) or last)
                if stop is not None:
                    return "".join([*shown, text]), stop
            shown += [text, found]
            if not found:
                return "".join(shown), None
            self._inside = not self._inside
            text = after


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of a text are the beginning of a mark that is not in it."""
    return next((size for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), 0)


def _automaton(stops: Sequence[str]) -> _State:
    root = _State(0, None)
    for stop in stops:
        state = root
        for character in stop:
            if character not in state.next:
                state.next[character] = _State(state.depth + 1, root)
            state = state.next[character]
        state.stop = stop
    # Breadth first: the fallback of a state is shorter than the state, and so already complete.
    waiting = deque(root.next.values())
    while waiting:
        state = waiting.popleft()
        for character, onward in state.next.items():
            waiting.append(onward)
            shorter = state.fallback
            while shorter is not None and character not in shorter.next:
                shorter = shorter.fallback
            if shorter is not None:
                fallback = shorter.next[character]
                onward.fallback = fallback
                onward.stop = onward.stop or fallback.stop
    return root
