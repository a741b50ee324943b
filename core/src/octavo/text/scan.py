"""Markers in a stream of text, wherever the pieces of text happen to be cut."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Markers:
    """Fixed texts to look for, none of which begins another. Looking takes time linear in the text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        assert all(self.texts), "an empty marker is everywhere"
        assert not any(a != b and b.startswith(a) for a in self.texts for b in self.texts), self.texts
        self._pattern = re.compile("|".join(map(re.escape, self.texts))) if self.texts else None
        self._beginnings = frozenset(text[:end] for text in self.texts for end in range(1, len(text)))
        self._longest = max(map(len, self.texts), default=1) - 1

    def find(self, text: str, start: int = 0) -> tuple[int, str]:
        """Where the first marker in ``text`` begins, and which it is. Where there is none: the index from which on the
        text may be the beginning of one, and "".
        """
        if self._pattern is None:
            return len(text), ""
        found = self._pattern.search(text, start)
        if found is not None:
            return found.start(), found[0]
        for at in range(max(start, len(text) - self._longest), len(text)):
            if text[at:] in self._beginnings:
                return at, ""
        return len(text), ""


class Veil:
    """Takes markers out of a text that comes in pieces."""

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._held = ""

    def push(self, text: str) -> str:
        """The text less the markers; what may be the beginning of one is held back."""
        text = self._held + text
        shown, start = [], 0
        while True:
            at, marker = self._markers.find(text, start)
            shown.append(text[start:at])
            if not marker:
                self._held = text[at:]
                return "".join(shown)
            start = at + len(marker)

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held
