"""The constraint that an answer is held to, together with tools and reasoning.

What must be calls is held to the model's own way of writing them. A constraint that the client asks for may be broken
by a call, and comes after the reasoning of a model that thinks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from octavo.errors import RequestError
from octavo.server.generation.parsers import Parsers
from octavo.structured_output import StructuredOutput
from octavo.text.grammar.regex import ascii_classes
from octavo.text.grammar.schema import BadConstraint
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.reasoning.kind import ReasoningParser
from octavo.text.parsing.tools import ToolParser
from octavo.text.parsing.tools.grammars import json_rule

_TEXT = r"TEXT: /(.|\n)*/"
_GAP = r"GAP: /[ \n]{0,4}/"
"""Between reasoning and the answer."""
_TO_ESCAPE = re.compile(r"\\.|/|\n", re.DOTALL)
_ESCAPED = {"/": r"\/", "\n": r"\n"}


def constraint_of(
    asked: StructuredOutput | None,
    tools: Sequence[Tool],
    kind: ToolParser | None,
    parsers: Parsers,
    *,
    must_call: bool,
    several: bool,
    inside: bool,
) -> StructuredOutput | None:
    """What the answer is held to. ``asked`` is what the client asks for; ``tools`` are those that may be called, in the
    way of ``kind``; ``inside`` says that the prompt ends in the midst of reasoning. Raises RequestError where these
    cannot be had together, or not exactly.
    """
    try:
        return _form_of(asked, tools, kind, parsers, must_call=must_call, several=several, inside=inside)
    except BadConstraint as error:
        raise RequestError(str(error), param="tools" if asked is None else asked.param) from error


def _form_of(
    asked: StructuredOutput | None,
    tools: Sequence[Tool],
    kind: ToolParser | None,
    parsers: Parsers,
    *,
    must_call: bool,
    several: bool,
    inside: bool,
) -> StructuredOutput | None:
    calls = "" if kind is None or kind.grammar is None else kind.grammar.rules(tools, parsers.literal, several=several)
    if must_call:
        if asked is not None and asked.kind not in ("json", "json_object"):
            raise RequestError(
                f"'tool_choice' asks for calls and '{asked.param}' for another constraint; send one of them.",
                param="tool_choice",
            )
        return _grammar("calls", calls, parsers, inside, param="tools")
    if asked is None:
        return _strict(tools, kind)
    rule = _rule(asked)
    if tools and not (rule and calls):
        raise RequestError(
            f"'{asked.param}' cannot go with 'tools' here, in this way and with this model; send one of them, or "
            "choose 'required' or a function in 'tool_choice'.",
            param=asked.param,
        )
    if not rule or not (tools or parsers.reasoning):
        return asked
    start = "constrained | calls" if tools else "constrained"
    return _grammar(start, f"constrained: {rule}\n{calls}", parsers, inside, param=asked.param)


def _strict(tools: Sequence[Tool], kind: ToolParser | None) -> StructuredOutput | None:
    """Free text in which a marker begins a call that obeys its schema, where a tool asks for that."""
    if kind is None or kind.grammar is None or not kind.grammar.trigger or not any(tool.strict for tool in tools):
        return None
    grammar = kind.grammar
    tag = {"structures": [grammar.structure(tool) for tool in tools], "triggers": [grammar.trigger]}
    return StructuredOutput(structural_tag=tag, param="tools")


def _grammar(start: str, rules: str, parsers: Parsers, inside: bool, *, param: str) -> StructuredOutput:
    """A grammar whose answer is ``start``, behind the reasoning of a model that has any."""
    lines = [f"answer: {start}", rules]
    reasoning = parsers.reasoning
    if reasoning is None or not reasoning.end:
        lines.insert(0, "start: answer")
    else:
        lines += [*_reasoning(reasoning, parsers), _TEXT, _GAP]
        begin = parsers.literal(reasoning.begin)
        lines.insert(0, "start: reasoning GAP answer" if inside else f"start: ({begin} reasoning GAP)? answer")
    return StructuredOutput(grammar="\n".join(lines), param=param)


def _reasoning(kind: ReasoningParser, parsers: Parsers) -> list[str]:
    end = parsers.literal(kind.end)
    if kind.end in parsers.special:  # no text spells it
        return [f"reasoning: TEXT {end}"]
    return [f"reasoning[lazy]: TEXT {end}"]


def _rule(asked: StructuredOutput) -> str:
    """The constraint as the right-hand side of a rule; empty for those that are grammars themselves."""
    match asked.kind:
        case "json":
            schema = json.loads(asked.source)
            return json_rule(schema if isinstance(schema, dict) else {} if schema else {"not": {}})
        case "json_object":
            return json_rule({"type": "object"})
        case "choice":
            return " | ".join(json.dumps(one, ensure_ascii=False) for one in json.loads(asked.source))
        case "regex":
            regex = asked.source.removeprefix("^")
            body = regex.removesuffix("$")
            if (len(body) - len(body.rstrip("\\"))) % 2 == 0:  # else the "$" is a character
                regex = body
            return "/" + _TO_ESCAPE.sub(lambda found: _ESCAPED.get(found[0], found[0]), ascii_classes(regex)) + "/"
    return ""
