"""Grammars of answers that are calls: the marks around each call, and arguments that obey the tool's schema.

They are written in llguidance's dialect of Lark, where ``%json`` stands for the texts that a JSON schema allows. What
surrounds the arguments is fixed to the character, as models of that kind write it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

from octavo.text.parts import Tool
from octavo.text.tools.kind import Literal

Texts: TypeAlias = Sequence[str]
"""Pieces of fixed text; a marker is a piece of its own, since it may be a special token."""
Around: TypeAlias = Callable[[str], tuple[Texts, Texts]]
"""What stands around the arguments of a call of the function of that name."""
Grammar: TypeAlias = Callable[[Sequence[Tool], bool, Literal], str]


def around(call: Around, before: Texts = (), after: Texts = (), between: Texts = ()) -> Grammar:
    """The grammar of calls of which each is written as ``call`` says, ``between`` two of them, all of them inside of
    ``before`` and ``after``. See `octavo.text.tools.ToolParser.grammar`.
    """

    def grammar(tools: Sequence[Tool], several: bool, literal: Literal) -> str:
        def fixed(texts: Texts) -> str:
            return " ".join(literal(text) for text in texts if text)

        more = f"({fixed(between)} call)*" if several else ""
        rules = [
            f"calls: {fixed(before)} call {more} {fixed(after)}",
            "call: " + " | ".join(f"call_{number}" for number in range(len(tools))),
        ]
        for number, tool in enumerate(tools):
            head, tail = call(tool.name)
            schema = json.dumps(tool.parameters)
            rules += [
                f"call_{number}: {fixed(head)} arguments_{number} {fixed(tail)}",
                f"arguments_{number}: %json {schema}",
            ]
        return "\n".join(rules) + "\n"

    return grammar


def an_object(name: str, key: str = "arguments") -> tuple[list[str], list[str]]:
    """Around arguments that are an entry of an object with the name."""
    return [f'{{"name": {json.dumps(name)}, "{key}": '], ["}"]
