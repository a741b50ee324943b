"""Grammars of answers that are calls: the marks around each call, and arguments that obey the tool's schema.

They are written in llguidance's dialect of Lark, where ``%json`` stands for the texts that a JSON schema allows. What
surrounds the arguments is fixed to the character, as models of that kind write it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.text.grammar.schema import exact
from octavo.text.grammar.vacuous import without_vacuous
from octavo.text.parsing.parts import Tool

Texts: TypeAlias = Sequence[str]
"""Pieces of fixed text; a marker is a piece of its own, since it may be a special token."""
Literal: TypeAlias = Callable[[str], str]
"""How a piece stands in a grammar: quoted, or by its number where it is a special token."""

_JSON = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}", "json_allowed_escapes": 'nrtbf\\"'}
"""How JSON is written: with bounded space, because small models like to write nothing else for ever, and without
``\\u``, which could write half a character.
"""


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
            rules.append(f"arguments_{number}: {json_rule(_arguments(tool), lenient=not tool.strict)}")
        return "\n".join(rules) + "\n"

    def structure(self, tool: Tool) -> dict[str, Any]:
        """One call, as a structure of a structural tag (`octavo.sampling.StructuredOutput`). Only the arguments of a
        strict tool are held to more than being an object.
        """
        head, tail = self.call(tool.name)
        return {
            "begin": "".join((*self.before, *head)),
            "schema": _arguments(tool) if tool.strict else {"type": "object"},
            "end": "".join((*tail, *self.after)),
        }


def json_rule(schema: Mapping[str, Any], *, lenient: bool = False) -> str:
    """The right-hand side of a rule for what a schema allows. What it asks for that cannot be enforced is an error, or
    is passed over if ``lenient``. Raises BadConstraint where the grammar would not enforce it exactly.
    """
    schema = without_vacuous(schema) if lenient else exact(schema)
    text = json.dumps({**schema, "x-guidance": {**_JSON, "lenient": lenient}}, ensure_ascii=False)
    # In a string of the schema, where else; as it stands it would pass for the mark of another kind of grammar.
    return "%json " + text.replace("::=", "\\u003a:=")


def _arguments(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments: an object, and nothing in it where the tool has no parameters."""
    schema: dict[str, Any] = {"type": "object", **tool.parameters}
    if schema.get("properties") == {}:
        schema.setdefault("additionalProperties", False)
    return schema


def an_object(name: str, key: str = "arguments") -> tuple[list[str], list[str]]:
    """Around arguments that are an entry of an object with the name."""
    return [f'{{"name": {json.dumps(name)}, "{key}": '], ["}"]
