"""JSON values in a feed, handed on as they come.

The values are cut out of the text, not checked: what stands between the brackets is the model's, right or wrong. Text
in a string is never taken for a bracket or a marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from octavo.text.parsing.feed import SPACE, Feed, Steps

Say = Callable[[str], None]

_QUIET = re.compile(r'[^{}\[\]"<]+')
"""Text outside of strings in which nothing begins or ends: every marker of `value` begins with one of the others."""
_STRING_TEXT = re.compile(r'[^"\\]+')
_SCALAR_END = frozenset(SPACE + ',}];<[{"')
"""All that may follow a scalar, the first character of every marker included."""
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = "0123456789abcdefABCDEF"


def value(feed: Feed, say: Say, ends: tuple[str, ...] = ()) -> Steps[bool]:
    """Take one value and say its text. False if there is none, or it is cut short: by the end of the text, or by one of
    ``ends`` outside of a string, which stays in the feed.
    """
    first = yield from feed.peek()
    if first == '"':
        return (yield from string(feed, say))
    if first in ("{", "["):
        return (yield from _nested(feed, say, ends))
    return (yield from _scalar(feed, say))


def _nested(feed: Feed, say: Say, ends: tuple[str, ...]) -> Steps[bool]:
    depth = 0
    while True:
        character = yield from feed.peek()
        if not character or (ends and (yield from feed.sees_any(ends))):
            return False
        if feed.half_of(ends):
            feed.take(feed.rest)
            return False
        if character == '"':
            if not (yield from string(feed, say)):
                return False
            continue
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            say(feed.take(1))
            if depth == 0:
                return True
            continue
        say(feed.take(1))
        say(feed.take_while(_QUIET))


def _scalar(feed: Feed, say: Say) -> Steps[bool]:
    some = False
    while True:
        character = yield from feed.peek()
        if not character or character in _SCALAR_END:
            return some
        say(feed.take(1))
        some = True


def string(feed: Feed, say: Say) -> Steps[bool]:
    """Take a string and say its text, quotes and escapes included. False if the text ends first."""
    say(feed.take(1))
    while True:
        character = yield from feed.peek()
        if not character:
            return False
        if character == "\\":
            say(feed.take(1))
            if not (yield from feed.peek()):
                return False
            say(feed.take(1))
        elif character == '"':
            say(feed.take(1))
            return True
        else:
            say(feed.take_while(_STRING_TEXT))


def short_string(feed: Feed) -> Steps[str | None]:
    """Take a string and return what it stands for; ``None`` if there is none. For keys and names."""
    if (yield from feed.peek()) != '"':
        return None
    text: list[str] = []
    if not (yield from string(feed, text.append)):
        return None
    try:
        read = json.loads("".join(text), strict=False)
    except ValueError:
        return None
    return whole_text(str(read))


def decoded_string(feed: Feed, say: Say) -> Steps[bool]:
    """Take a string and say what it stands for, as it comes. False if the text ends first."""
    feed.take(1)
    high = ""  # the first half of a character outside the basic plane
    while True:
        character = yield from feed.peek()
        if not character:
            return False
        if character != "\\":
            if high:
                say("\ufffd")
                high = ""
            if character == '"':
                feed.take(1)
                return True
            say(feed.take_while(_STRING_TEXT))
            continue
        feed.take(1)
        letter = yield from feed.peek()
        if not letter:
            return False
        feed.take(1)
        if letter != "u":
            say("\ufffd" * bool(high) + _ESCAPES.get(letter, "\\" + letter))
            high = ""
            continue
        digits = yield from feed.run(_HEX, most=4)
        if len(digits) < 4 and not (yield from feed.peek()):
            return False  # cut inside of the escape, perhaps of the second half of a character
        if len(digits) < 4:
            say("\ufffd" * bool(high) + "\\u" + digits)
            high = ""
            continue
        unit = chr(int(digits, 16))
        if high and "\udc00" <= unit <= "\udfff":
            say((high + unit).encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
            high = ""
            continue
        say("\ufffd" * bool(high))
        high = unit if "\ud800" <= unit <= "\udbff" else ""
        if not high:
            say(whole_text(unit))


def whole_text(text: str) -> str:
    """The text with U+FFFD for halves of characters, which no answer can carry."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
