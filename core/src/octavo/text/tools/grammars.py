"""Grammars of answers that are calls: the marks around each call, and arguments that obey the tool's schema.

They are written in llguidance's dialect of Lark, where ``%json`` stands for the texts that a JSON schema allows. What
surrounds the arguments is fixed to the character, as models of that kind write it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.text.parts import Tool

Texts: TypeAlias = Sequence[str]
"""Pieces of fixed text; a marker is a piece of its own, since it may be a special token."""
Literal: TypeAlias = Callable[[str], str]
"""How a piece stands in a grammar: quoted, or by its number where it is a special token."""

_SPACE = r"[\x20\x0A\x0D\x09]{1,64}"
"""Between the parts of JSON; bounded, because small models like to write nothing else for ever."""


@dataclass(frozen=True)
class CallGrammar:
    """How calls are written.

    ``call`` says of a function's name what stands around its arguments. All calls stand inside of ``before`` and
    ``after``, two of them with ``between`` between. ``trigger`` is the marker behind which there is nothing but a call;
    empty where nothing marks one.
    """

    call: Callable[[str], tuple[Texts, Texts]]
    before: Texts = ()
    after: Texts = ()
    between: Texts = ()
    trigger: str = ""

    def rules(self, tools: Sequence[Tool], literal: Literal, *, several: bool) -> str:
        """Rules of which ``calls`` is one call of one of the tools, or several."""

        def fixed(texts: Texts) -> str:
            return " ".join(literal(text) for text in texts if text)

        more = f"({fixed(self.between)} call)*" if several else ""
        rules = [
            f"calls: {fixed(self.before)} call {more} {fixed(self.after)}",
            "call: " + " | ".join(f"call_{number}" for number in range(len(tools))),
        ]
        for number, tool in enumerate(tools):
            head, tail = self.call(tool.name)
            rules.append(f"call_{number}: {fixed(head)} arguments_{number} {fixed(tail)}")
            rules.append(f"arguments_{number}: %json {json.dumps(schema_of(tool), ensure_ascii=False)}")
        return "\n".join(rules) + "\n"

    def structure(self, tool: Tool) -> dict[str, Any]:
        """One call, as a structure of a structural tag (`octavo.sampling.StructuredOutput`)."""
        head, tail = self.call(tool.name)
        return {
            "begin": "".join((*self.before, *head)),
            "schema": schema_of(tool),
            "end": "".join((*tail, *self.after)),
        }


def schema_of(tool: Tool) -> Mapping[str, Any]:
    """What a tool's arguments are held to: an object, and nothing in it where the tool has no parameters. What a schema
    asks for that cannot be enforced is an error where the tool is strict, and else passed over.
    """
    schema: dict[str, Any] = {"type": "object", **tool.parameters}
    if schema.get("properties") == {}:
        schema.setdefault("additionalProperties", False)
    return {"x-guidance": {"whitespace_pattern": _SPACE, "lenient": not tool.strict}, **schema}


def an_object(name: str, key: str = "arguments") -> tuple[list[str], list[str]]:
    """Around arguments that are an entry of an object with the name."""
    return [f'{{"name": {json.dumps(name)}, "{key}": '], ["}"]
