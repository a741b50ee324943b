"""Random tool calls in every way that models write them, for tests that cut them anywhere."""

from __future__ import annotations

import json
import random
from typing import Any

from octavo.text.parsing.parts import Tool

CALL, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
ALL, ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "more": {"type": ["object", "array", "boolean", "number", "null"]},
    },
}
TOOLS = (Tool("get_weather", "", SCHEMA), Tool("get_time"))

Calls = list[tuple[str, dict[str, Any]]]

_TEXTS = ("Rome", "", "02134", " +49 ", "a\nb", '"{[', "it's", "é😀", "</b> <", "null ", "\\n", "{'a': 1}")


def some_calls(chance: random.Random) -> Calls:
    """One call, or several."""
    return [
        ("get_time", {}) if chance.random() < 0.2 else ("get_weather", some_arguments(chance))
        for _ in range(chance.choice((1, 1, 2)))
    ]


def some_arguments(chance: random.Random) -> dict[str, Any]:
    """Arguments that obey `SCHEMA`."""
    arguments: dict[str, Any] = {}
    if chance.random() < 0.9:
        arguments["city"] = chance.choice(_TEXTS)
    if chance.random() < 0.5:
        arguments["days"] = chance.randint(-20, 20000)
    if chance.random() < 0.5:
        arguments["note"] = chance.choice((None, *_TEXTS))
    if chance.random() < 0.5:
        arguments["more"] = chance.choice((None, True, 3.5, [1, "x", {}], {"a": {"b": [None, "é"]}}, []))
    return arguments


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(name: str, arguments: Any, key: str = "arguments") -> str:
    return _json({"name": name, key: arguments})


def _gemma(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma, value)) + "]"
    return f"<escape>{value}<escape>" if isinstance(value, str) else _json(value)


def _coder(name: str, arguments: dict[str, Any]) -> str:
    texts = {key: item if isinstance(item, str) else _json(item) for key, item in arguments.items()}
    inside = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def _python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}(" + ", ".join(f"{key}={item!r}" for key, item in arguments.items()) + ")"


WRITERS: dict[str, Any] = {
    "hermes": lambda calls: "\n".join(f"<tool_call>\n{_object(*call)}\n</tool_call>" for call in calls),
    "llama3_json": lambda calls: "<|python_tag|>" + "; ".join(_object(*call, "parameters") for call in calls),
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(said)}" for name, said in calls),
    "mistral (list)": lambda calls: "[TOOL_CALLS] [" + ", ".join(_object(*call) for call in calls) + "]",
    "deepseek_v3": lambda calls: (
        ALL
        + "\n".join(f"{CALL}function{SEPARATOR}{name}\n```json\n{_json(said)}\n```{END}" for name, said in calls)
        + ALL_END
    ),
    "deepseek_v31": lambda calls: (
        ALL + "".join(f"{CALL}{name}{SEPARATOR}{_json(said)}{END}" for name, said in calls) + ALL_END
    ),
    "gemma": lambda calls: "".join(
        f"<start_function_call>call:{name}{_gemma(said)}<end_function_call>" for name, said in calls
    ),
    "pythonic": lambda calls: "[" + ", ".join(_python(*call) for call in calls) + "]",
    "pythonic (marked)": lambda calls: (
        "<|python_start|>[" + ", ".join(_python(*call) for call in calls) + "]<|python_end|>"
    ),
    "qwen3_coder": lambda calls: "\n".join(_coder(*call) for call in calls),
    "json": lambda calls: "\n".join(_object(*call) for call in calls),
    "json (fence)": lambda calls: "```json\n" + "\n".join(_object(*call) for call in calls) + "\n```",
}
"""By the name of the parser, and where it has several ways, by which of them."""

ONLY_FIRST = {"json", "llama3_json", "pythonic", "pythonic (marked)"}
"""The ways that are calls at the beginning of an answer only."""


def parser_name(way: str) -> str:
    """The parser of a way."""
    return way.partition(" ")[0]
