"""From the constraint that a request asks for to a grammar of llguidance's, both as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from octavo.text.grammar.regex import ascii_classes
from octavo.text.grammar.schema import BadConstraint, exact

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_SPACE = r"[\x20\x0A\x0D\x09]{1,64}"
"""Between the parts of JSON. Bounded, because small models like to write nothing else for ever."""
_ESCAPES = 'nrtbf\\"'
"""After a backslash in a string. Not u: it could write a key that is excluded as it stands, or half a character."""
_DEFAULTS: JsonCompileOptions = {"whitespace_pattern": _SPACE}
_STRICT: JsonCompileOptions = {"lenient": False, "coerce_one_of": False, "json_allowed_escapes": _ESCAPES}
"""Whatever the schema says of itself: what cannot be enforced is refused."""
_TEMPERATURE = re.compile(r"^\s*[?!]?\w+\s*\[[^\]]*\btemperature\s*=", re.MULTILINE)
_TAG_KEYS = {"type", "structures", "triggers"}
_STRUCTURE_KEYS = {"begin", "schema", "end"}


def ll_grammar(kind: str, source: str, special: Mapping[str, int]) -> str:
    """The grammar of a `StructuredOutput`, given by its ``kind`` and ``source``; ``special`` tokens by name.

    Raises BadConstraint.
    """
    match kind:
        case "json":
            return _json_grammar(source)
        case "json_object":
            return _json_grammar('{"type": "object"}')
        case "regex":
            return LLMatcher.grammar_from_regex(ascii_classes(_unanchored(source)))
        case "choice":
            choices = json.loads(source)
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(_quoted, choices)))
        case "grammar":
            return LLMatcher.grammar_from_lark(_lark(source))
        case "structural_tag":
            return LLMatcher.grammar_from_lark(_tags(json.loads(source), special))
        case other:
            raise BadConstraint(f"there is no kind of constraint {other!r}")


def _json_grammar(schema: str) -> str:
    parsed = json.loads(schema)
    if parsed is False:
        raise BadConstraint("nothing is valid by the schema false")
    enforced = json.dumps(exact({} if parsed is True else parsed), ensure_ascii=False)
    return LLMatcher.grammar_from_json_schema(enforced, defaults=_DEFAULTS, overrides=_STRICT)


def _unanchored(regex: str) -> str:
    """Without ``^`` before and ``$`` behind: the whole output must match anyway."""
    regex = regex.removeprefix("^")
    if regex.endswith("$") and (len(regex) - len(regex[:-1].rstrip("\\"))) % 2 == 1:
        regex = regex[:-1]
    return regex


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lark(source: str) -> str:
    """Lark as it is, GBNF as Lark."""
    if "::=" in source:
        try:
            return str(any_to_lark(source))
        except Exception as error:  # whatever the converter meets in a stranger's grammar
            raise BadConstraint(f"the grammar is no valid GBNF: {error}") from error
    if _TEMPERATURE.search(source):
        raise BadConstraint("a rule of the grammar asks for a temperature of its own, which is not supported")
    return source


def _tags(asked: Any, special: Mapping[str, int]) -> str:
    """Free text in which a trigger opens one of the structures that begin with it."""
    if unknown := asked.keys() - _TAG_KEYS:
        raise BadConstraint(
            f"structural_tag has {', '.join(sorted(unknown))}, which is not supported; give structures and triggers"
        )
    structures, triggers = _list_of(asked, "structures", dict), _list_of(asked, "triggers", str)
    groups: dict[str, list[str]] = {}
    for structure in structures:
        if unknown := structure.keys() - _STRUCTURE_KEYS:
            raise BadConstraint(
                f"a structure of structural_tag has {', '.join(sorted(unknown))}, which is not supported"
            )
        begin, end = structure.get("begin"), structure.get("end", "")
        if not isinstance(begin, str) or not isinstance(end, str):
            raise BadConstraint("begin and end of a structure are strings")
        trigger = next((trigger for trigger in triggers if trigger and begin.startswith(trigger)), None)
        if trigger is None:
            raise BadConstraint(f"a structure begins with {begin!r:.60}, and no trigger does")
        schema = structure.get("schema", {})
        if not isinstance(schema, dict):
            raise BadConstraint("the schema of a structure is an object")
        strict = json.dumps({**exact(schema), "x-guidance": {**_DEFAULTS, **_STRICT}}, ensure_ascii=False)
        parts = (_text(begin[len(trigger) :], special), f"%json {strict}", _text(end, special))
        groups.setdefault(trigger, []).append(" ".join(filter(None, parts)))
    lines = [f"start: ({' | '.join(f'tag_{i}' for i in range(len(groups)))})* TEXT", r"TEXT: /(.|\n)*/"]
    for i, (trigger, bodies) in enumerate(groups.items()):
        choices = " | ".join(f"tag_{i}_{k}" for k in range(len(bodies)))
        if any(trigger.startswith(name) for name in special):
            lines.append(f"tag_{i}: TEXT {_text(trigger, special)} ({choices})")
        else:
            lines.append(f"trigger_{i}[lazy]: TEXT {_quoted(trigger)}")
            lines.append(f"tag_{i}: trigger_{i} ({choices})")
        lines += [f"tag_{i}_{k}: {body}" for k, body in enumerate(bodies)]
    return "\n".join(lines)


def _list_of(asked: Mapping[str, Any], key: str, kind: type) -> Sequence[Any]:
    value = asked.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(one, kind) for one in value):
        raise BadConstraint(f"{key} of structural_tag must be a list that is not empty")
    return value


def _text(text: str, special: Mapping[str, int]) -> str:
    """A text in Lark: what spells special tokens is those tokens."""
    if not text:
        return ""
    names = sorted((name for name in special if name), key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, names)) + ")", text) if names else [text]
    return " ".join(f"<[{special[p]}]>" if p in special else _quoted(p) for p in pieces if p)
