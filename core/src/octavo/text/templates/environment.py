"""The jinja2 environment that chat templates run in: what templates expect to find, and no way out of it.

A template comes with the checkpoint, from whoever made it. The sandbox keeps it from Python (no attribute that leads to
code, no change of the values it is given), and bounds what it can make: `range` (100 000, by jinja2), repetition and
powers (here), the rendered text (`octavo.text.templates.chat`). Not bounded here: CPU time (nested loops may run for
long), and memory taken inside one expression in other ways (doubling a string with "~" in a loop, a huge width in a
format string). A server runs templates in a process that bounds both (`octavo.text.templates.worker`); elsewhere treat
a template like the weights it came with: from a source you trust.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_RENDERED = 8 * 1024 * 1024  # characters; some 2 million tokens, more than any context
_MAX_POWER_BITS = 1024
_ESCAPED_MARK = re.compile(r"(?<!\\)((?:\\\\)*)\\u(e0[0-9a-f]{2})")


class Refusal(TemplateError):
    """The template called raise_exception: it does not take such messages."""


@lru_cache(maxsize=32)
def compile_template(source: str) -> Template:
    """A template, compiled; may be used by several threads. Raises TemplateSyntaxError."""
    return _environment.from_string(source)


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which also refuses to make huge values from small ones."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                    _refuse_huge(len(value) * times)
        elif isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MAX_POWER_BITS:
            raise SecurityError(f"a power of more than {_MAX_POWER_BITS} bits")
        return super().call_binop(context, operator, left, right)


def _refuse_huge(size: int) -> None:
    if size > MAX_RENDERED:
        raise SecurityError(f"a repetition of {size} items; the limit is {MAX_RENDERED}")


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks the assistant's words for training; for serving it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """jinja2's namespace() less names with a leading underscore, which could stand in for Python's own."""

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _namespace(*args: Any, **kwargs: Any) -> _Namespace:
    values = dict(*args, **kwargs)
    for name in values:
        _refuse_underscore(name)
    return _Namespace(values)


def _refuse_underscore(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"namespace attribute {name!r} begins with an underscore")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """dict(), as a function: the type itself has attributes that a template has no business with."""
    return dict(*args, **kwargs)


def _raise_exception(message: object) -> NoReturn:
    raise Refusal(str(message))


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)  # local time, as templates say "today"


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training; jinja2's own filter escapes "<", ">", "&" and "'" for HTML."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    # The marks of `octavo.text.tokenizer.special_text` have to be found again.
    return _ESCAPED_MARK.sub(lambda found: found[1] + chr(int(found[2], 16)), text) if ensure_ascii else text


def _make_environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _tojson
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, namespace=_namespace, dict=_dict
    )
    return environment


_environment = _make_environment()
