"""What a way of writing tool calls is. One file beside this one for each that is built in."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from octavo.text.parsing.parts import OutputParser, Tool
from octavo.text.parsing.tools.grammars import CallGrammar

NewId: TypeAlias = Callable[[], str]

NAME_CHARACTERS = string.ascii_letters + string.digits + "_-.:/"
"""What names of functions are made of; the API allows the first four kinds."""

_LETTERS = string.ascii_letters + string.digits
_random = random.SystemRandom()


def call_id() -> str:
    """An id as the OpenAI API gives them."""
    return "call_" + "".join(_random.choices(_LETTERS, k=24))


def short_id() -> str:
    """An id of nine letters and digits, the only kind that Mistral's templates take back."""
    return "".join(_random.choices(_LETTERS, k=9))


@dataclass(frozen=True)
class ToolParser:
    """One way in which models write tool calls. What the ``octavo_models`` hook supplies, too.

    ``open`` makes the parser of one answer to a request that offers these tools. ``claims`` says of a chat template's
    text whether it asks its model for this way; parsers are asked in order, those of plugins first.
    """

    name: str
    open: Callable[[Sequence[Tool]], OutputParser]
    claims: Callable[[str], bool]
    markers: frozenset[str] = frozenset()
    """What the parser looks for. Where one is a special token its text is shown to the parser, and to nobody else."""
    grammar: CallGrammar | None = None
    """What an answer is held to that must be calls; ``None``: it is held to plain JSON objects instead."""
    in_prompt: bool = False
    """Whether a prompt can explain it to any model: where the chat template has no place for tools,
    `octavo.text.parsing.tools.in_prompt` writes them into the system message.
    """
    short_ids: bool = False
    """Whether the chat template takes ids of nine letters and digits alone."""
    calls_as_text: bool = False
    """Whether the chat template wants earlier calls as the API has them: arguments as JSON text, and no content where
    there are only calls. Else arguments are objects, and there is always content.
    """
