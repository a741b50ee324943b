"""The parts of one choice as all APIs tell of them: calls numbered in order, and nothing that an end left open."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from octavo.server.generation.backend import Choice
from octavo.text.parsing.parts import CallArguments, CallBegins, CallCut, Part, Unsettled


class ChoiceParts:
    """Goes through the parts of one choice.

    ``markers``: what the parser looks for. ``one_call``: only the first call is told of.
    """

    def __init__(self, markers: Collection[str] = (), *, one_call: bool = False) -> None:
        self._markers = markers
        self._one_call = one_call
        self._numbers: dict[int, int] = {}
        """The parser's numbers of the calls to ours: a plugin may leave one out, clients take them for places."""
        self._cut = False

    def told(self, parts: Sequence[Part], choice: Choice) -> list[Part]:
        """What clients are told of these parts, which come with ``choice``."""
        told: list[Part] = []
        for part in parts:
            match part:
                case CallBegins(index):
                    self._numbers[index] = len(self._numbers)
                    told += self._numbered(part)
                case CallArguments() | CallCut():
                    told += self._numbered(part)
                case Unsettled(text):
                    told += [part] if self._is_text(text, choice) else []
                case _:
                    told.append(part)
        return told

    def reason(self, choice: Choice) -> str | None:
        """Why the choice ended: its calls are a reason only if the last of them is complete."""
        calls = bool(self._numbers) and not self._cut
        return "tool_calls" if choice.finish_reason == "stop" and calls else choice.finish_reason

    def _numbered(self, part: CallBegins | CallArguments | CallCut) -> list[Part]:
        number = self._numbers.get(part.index)
        if number is None or (self._one_call and number > 0):
            return []
        self._cut = self._cut or isinstance(part, CallCut)
        return [part if part.index == number else replace(part, index=number)]

    def _is_text(self, text: str, choice: Choice) -> bool:
        """Whether what the end left open is for the reader. A model that ended by itself has written all that it meant,
        so that "<" is text, unless it is most of a marker or stands behind a call.
        """
        if self._numbers or choice.finish_reason != "stop" or isinstance(choice.stop_reason, str):
            return False
        half = text.strip()
        return not any(marker.startswith(half) and 2 * len(half) > len(marker) for marker in self._markers)
