"""The limits on a body's shape, checked on its JSON before anything is built from it.

They go by the names of fields, so they hold for every API that has a field of that name, and for fields whose feature
is not built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgspec
import numpy as np

from octavo.errors import RequestError
from octavo.server.transport.limits import Limits

_NUMBERS = {
    "n": "n",
    "best_of": "best_of",
    "logprobs": "logprobs",
    "top_logprobs": "logprobs",
    "prompt_logprobs": "logprobs",
}
_WORDS = {"stop": "stop_strings", "stop_sequences": "stop_strings", "bad_words": "bad_words"}
_COUNTS = {
    **_WORDS,
    "logit_bias": "logit_bias",
    "stop_token_ids": "token_ids",
    "allowed_token_ids": "token_ids",
    "logprob_token_ids": "token_ids",
    "tools": "tools",
    "functions": "tools",
}
_PROMPTS = ("prompt", "input")
_TOOLS = ("tools", "functions")
_SCHEMAS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("response_format", "structured_outputs", "structural_tag", "json_schema"), (dict, list, str)),
    **dict.fromkeys(("regex", "grammar", "ebnf"), (dict, list, str)),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), (dict, list, str)),
    **dict.fromkeys(("text", "output_config", "output_format"), dict),
}
"""Fields that hold something to be compiled, and the values that do; what else such a field holds is small."""


def check_size(data: bytes, limits: Limits) -> None:
    """Raise RequestError for JSON of so many parts that it would take many times its bytes in memory."""
    if _containers(data) <= limits.json_containers:
        return
    count = _containers_outside_strings(data)
    if count > limits.json_containers:
        raise RequestError(
            f"The body has {count} arrays and objects; this server takes at most {limits.json_containers} "
            "(json_containers). Send several requests.",
            code="limit_exceeded",
        )


def _containers(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


_NO_MARK = bytes(byte for byte in range(256) if byte not in b'[{"')


def _containers_outside_strings(data: bytes) -> int:
    """As `_containers`, but of the JSON rather than of the texts in it: a prompt may be full of brackets."""
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = np.frombuffer(plain.translate(None, _NO_MARK), np.uint8)
    quotes = marks == ord('"')
    outside = np.cumsum(quotes, dtype=np.int32) % 2 == 0
    return int(np.count_nonzero(outside & ~quotes))


def check_body(body: Mapping[str, Any], limits: Limits) -> None:
    """Raise RequestError for the first field of ``body`` that is beyond a limit."""
    if len(body) > limits.items:
        raise RequestError(
            f"The body has {len(body)} fields; this server takes at most {limits.items} (items). Send fewer.",
            code="limit_exceeded",
        )
    for name, limit in _NUMBERS.items():
        value = body.get(name)
        if type(value) is int and value > getattr(limits, limit):
            _refuse(name, f"is {_short(value)}", limits, limit, "a smaller number")
    for name, value in body.items():
        if isinstance(value, (list, dict)):
            _check_count(name, value, body, limits)
    for name in body.keys() & _WORDS.keys():
        _check_words(name, body[name], limits)
    for name in body.keys() & _SCHEMAS.keys():
        if isinstance(body[name], _SCHEMAS[name]):
            _check_schema(name, body[name], limits)
    for name in _TOOLS:
        for i, tool in enumerate(_each(body.get(name))):
            _check_schema(f"{name}[{i}]", tool, limits)


def _check_count(name: str, value: Any, body: Mapping[str, Any], limits: Limits) -> None:
    if name in _PROMPTS and isinstance(value, list) and value:
        if type(value[0]) is int:
            return  # one prompt, as token ids
        if isinstance(value[0], (str, list)):
            _check_prompts(name, value, body, limits)
            return
    limit = _COUNTS.get(name, "items")
    if len(value) > getattr(limits, limit):
        _refuse(name[:100], f"has {len(value)} entries", limits, limit, "fewer")


def check_depth(data: bytes, body: Any, limits: Limits) -> None:
    """Raise RequestError if ``body``, parsed from ``data``, is nested too deeply."""
    # There are no more levels than brackets, and few bodies have that many.
    if _containers(data) > limits.json_depth and depth_exceeds(body, limits.json_depth):
        raise RequestError(
            f"The body is JSON nested more than {limits.json_depth} levels deep, the limit of this server "
            "(json_depth); send a flatter one.",
            code="limit_exceeded",
        )


def check_text(data: bytes, body: Any, limits: Limits) -> None:
    """Raise RequestError if ``body``, parsed from ``data``, has more text than may be tokenised for one request."""
    if len(data) <= limits.text_characters:  # a character takes a byte at least
        return
    characters = _characters(body)
    if characters > limits.text_characters:
        raise RequestError(
            f"The texts of the body have {characters} characters together; this server takes at most "
            f"{limits.text_characters} (text_characters). Send less text, or several requests.",
            code="limit_exceeded",
        )


def _characters(body: Any) -> int:
    characters, left = 0, [body]
    while left:
        for value in _each(left.pop()):
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, (list, dict)):
                left.append(value)
    return characters


def depth_exceeds(value: Any, limit: int) -> bool:
    """Whether a JSON value has more than ``limit`` levels of arrays and objects; goes no deeper than that."""
    level = [value] if isinstance(value, (list, dict)) else []
    for _ in range(limit):
        level = [inner for outer in level for inner in _each(outer) if type(inner) in (list, dict)]
        if not level:
            return False
    return bool(level)


def _each(value: Any) -> Iterator[Any]:
    """The elements of an array, the values of an object, or the value itself."""
    if isinstance(value, dict):
        return iter(value.values())
    return iter(value) if isinstance(value, list) else iter((value,))


def _check_prompts(name: str, prompts: list[Any], body: Mapping[str, Any], limits: Limits) -> None:
    if len(prompts) > limits.prompts:
        _refuse(name, f"holds {len(prompts)} prompts", limits, "prompts", "several requests")
    for factor in ("n", "best_of"):
        times = body.get(factor)
        if type(times) is int and len(prompts) * times > limits.sequences:
            what = f"times {len(prompts)} prompts makes {len(prompts) * times} sequences"
            _refuse(factor, what, limits, "sequences", "several requests")


def _check_words(name: str, words: Any, limits: Limits) -> None:
    longest = max((len(word) for word in _each(words) if isinstance(word, str)), default=0)
    if longest > limits.word_characters:
        _refuse(name, f"has a string of {longest} characters", limits, "word_characters", "a shorter one")


def _check_schema(name: str, value: Any, limits: Limits) -> None:
    size = len(msgspec.json.encode(value))
    if size > limits.schema_bytes:
        _refuse(name, f"has {size} bytes", limits, "schema_bytes", "a shorter one")
    if depth_exceeds(value, limits.schema_depth):
        raise RequestError(
            f"'{name}' is nested more than {limits.schema_depth} levels deep, the limit of this server (schema_depth); "
            "send a flatter one.",
            param=name,
            code="limit_exceeded",
        )


def _short(value: int) -> str:
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"


def _refuse(name: str, what: str, limits: Limits, limit: str, cure: str) -> NoReturn:
    raise RequestError(
        f"'{name}' {what}; this server takes at most {getattr(limits, limit)} ({limit}). Send {cure}.",
        param=name,
        code="limit_exceeded",
    )
