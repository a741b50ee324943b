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


class MarkerFilter:
    """Takes markers out of a text that comes in pieces."""

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._held = ""
        self._at = 0  # where what is held back begins in all that was pushed

    def push(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text less the markers, and where it stands in all that was pushed; what may be the beginning of a marker
        is held back.
        """
        text = self._held + text
        shown, spans, start = [], [], 0
        while True:
            at, marker = self._markers.find(text, start)
            if at > start:
                shown.append(text[start:at])
                spans.append((self._at + start, self._at + at))
            if not marker:
                self._held = text[at:]
                self._at += at
                return "".join(shown), spans
            start = at + len(marker)

    def finish(self) -> tuple[str, list[tuple[int, int]]]:
        """What was held back, when no more text comes, and where it stands."""
        held, self._held = self._held, ""
        begin, self._at = self._at, self._at + len(held)
        return held, [(begin, self._at)] if held else []
