"""Calls written as JSON objects: ``{"name": …, "arguments": {…}}``, and what models make of that."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.text.parsing.feed import SPACE, Feed, Steps
from octavo.text.parsing.parts import CallArguments, CallBegins, CallCut
from octavo.text.parsing.tools.json_text import decoded_string, short_string, value
from octavo.text.parsing.tools.kind import NewId, call_id

_NAMES = frozenset({"name", "function"})
_ARGUMENTS = frozenset({"arguments", "parameters"})


class Calls:
    """The calls of one answer."""

    def __init__(self, feed: Feed, new_id: NewId = call_id) -> None:
        self.count = 0
        self._feed = feed
        self._new_id = new_id
        self._said = True

    def begin(self, name: str) -> None:
        """A call begins."""
        self._feed.emit(CallBegins(self.count, self._new_id(), name))
        self.count += 1
        self._said = False

    def say(self, text: str) -> None:
        """More of its arguments."""
        if text:
            self._feed.emit(CallArguments(self.count - 1, text))
            self._said = True

    def end(self, complete: bool = True) -> None:
        """It has ended. If it is not complete because the answer has ended, its arguments are what was written; else a
        call without arguments has an empty object of them.
        """
        if not complete and self._feed.cut:
            self._feed.emit(CallCut(self.count - 1))
        elif not self._said:
            self.say("{}")

    def cut(self, name: str) -> None:
        """The answer ended behind the name of a call."""
        self.begin(name)
        self.end(complete=False)


class _Draft:
    """One call that is being read."""

    def __init__(self, feed: Feed, calls: Calls, names: frozenset[str] | None) -> None:
        self.name: str | None = None
        self.begun = False
        self.has_arguments = False
        self._feed = feed
        self._calls = calls
        self._names = names
        self._held: list[str] = []

    def named(self, name: str) -> bool:
        """Take the name; False if it cannot be one. Where only certain names are calls, it is held back until there are
        arguments too.
        """
        if not name or (self._names is not None and name not in self._names):
            return False
        self.name = name
        if self._names is None or self.has_arguments:
            self.begin()
        return True

    def begin(self) -> None:
        """There is no doubt any more."""
        assert self.name is not None
        if not self.begun:
            self.begun = True
            self._feed.recorded()  # will not be wanted
            self._calls.begin(self.name)
            self._calls.say("".join(self._held))

    def say(self, text: str) -> None:
        """More of the arguments; they may come before the name."""
        if self.begun:
            self._calls.say(text)
        else:
            self._held.append(text)

    def end(self, complete: bool) -> None:
        """The object has ended, or the text has."""
        self.begin()
        self._calls.end(complete)


def read_calls(
    feed: Feed,
    calls: Calls,
    opening: str,
    ends: tuple[str, ...] = (),
    names: Iterable[str] | None = None,
    *,
    marked: bool = True,
) -> Steps[bool]:
    """Take call objects: one, several, or a list of them. True if there is one; else what was taken is words, with
    ``opening`` in front. ``ends``: markers that cut a call short; they stay. With ``names``, only those are calls.
    ``marked``: there is a marker in ``opening``, so that there is to be nothing but calls behind it.
    """
    known = None if names is None else frozenset(names)
    found = False
    feed.record()
    yield from feed.space()
    if (yield from feed.peek()) == "[":
        feed.take(1)
        yield from feed.space()
    while (yield from feed.peek()) == "{":
        draft = _Draft(feed, calls, known)
        complete = yield from _object(feed, draft, ends)
        if not draft.begun and not (draft.name is not None and (complete or feed.cut)):
            break
        draft.end(complete)
        found = True
        opening = ""
        feed.record()
        yield from feed.run(SPACE + ",;]}")
        if (yield from feed.peek()) != "{":
            feed.record()
    text = feed.recorded()
    unsettled = found or marked or (known is not None and _is_begun(text, known))
    (feed.unsettled if unsettled else feed.words)(("" if found else opening) + text)
    return found


def _is_begun(text: str, names: frozenset[str]) -> bool:
    """Whether a text may go on to be a call of one of these functions, and to nothing longer than its name."""
    compact = "".join(text.split()).removeprefix("[")
    return bool(compact) and any(f'{{"name":"{name}"'.startswith(compact) for name in names)


def _object(feed: Feed, draft: _Draft, ends: tuple[str, ...], outer: bool = True) -> Steps[bool]:
    """Take one object; False where it stops being one."""
    feed.take(1)
    while True:
        yield from feed.run(SPACE + ",")
        if (yield from feed.peek()) == "}":
            feed.take(1)
            return True
        key = yield from short_string(feed)
        if key is None:
            return False
        yield from feed.space()
        if (yield from feed.peek()) != ":":
            return False
        feed.take(1)
        yield from feed.space()
        if not (yield from _entry(feed, draft, key, ends, outer)):
            return False


def _entry(feed: Feed, draft: _Draft, key: str, ends: tuple[str, ...], outer: bool) -> Steps[bool]:
    first = yield from feed.peek()
    if key in _NAMES and draft.name is None:
        if key == "function" and first == "{" and outer:
            return (yield from _object(feed, draft, ends, outer=False))
        name = yield from short_string(feed)
        return name is not None and draft.named(name)
    if key in _ARGUMENTS and not draft.has_arguments:
        draft.has_arguments = True
        if draft.name is not None:
            draft.begin()
        return (yield from _arguments(feed, draft, first, ends))
    return (yield from value(feed, _ignore, ends))


def _arguments(feed: Feed, draft: _Draft, first: str, ends: tuple[str, ...]) -> Steps[bool]:
    if first == '"':  # JSON in a string, as in the API
        return (yield from decoded_string(feed, draft.say))
    if first in ("{", "["):
        return (yield from value(feed, draft.say, ends))
    scalar: list[str] = []
    complete = yield from value(feed, scalar.append, ends)
    text = "".join(scalar)
    if text != "null" and not (feed.cut and "null".startswith(text)):
        draft.say(text)
    return complete


def _ignore(_text: str) -> None:
    """For what is no part of a call."""
