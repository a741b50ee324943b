"""What constrains an output: a JSON schema, regex, choice, grammar or structural tag, checked and normalised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import RequestError

KINDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
MAX_GRAMMAR_BYTES = 512 * 1024
"""Of a schema, regex, grammar or list of choices."""
MAX_SCHEMA_DEPTH = 100
"""Objects and arrays within one another."""


@dataclass(frozen=True)
class StructuredOutput:
    """What an output must be, given by exactly one of its fields.

    * ``json``: a JSON schema (draft 2020-12), as text or as what `json.loads` makes of it;
    * ``json_object``: any JSON object;
    * ``regex``: a regular expression that the whole output matches, in the syntax of Rust's ``regex`` without
      look-around, boundaries and back references;
    * ``choice``: one of some strings;
    * ``grammar``: a context-free grammar, in llguidance's variant of Lark or in GBNF;
    * ``structural_tag``: free text in which some beginnings open a part with a grammar of its own, as vLLM has it:
      ``{"structures": [{"begin", "schema", "end"}, …], "triggers": [...]}``.

    ``json`` and ``structural_tag`` become JSON text, ``choice`` a tuple. Whether a model's tokens can be held to it is
    found out when it is compiled (`octavo.text.grammar.grammars`). ``param`` is the request field that errors name.

    Raises RequestError for anything but one of them, for a wrong type, and for what is larger than
    `MAX_GRAMMAR_BYTES` or deeper than `MAX_SCHEMA_DEPTH`.
    """

    json: str | bool | Mapping[str, Any] | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Iterable[str] | None = None
    grammar: str | None = None
    structural_tag: str | Mapping[str, Any] | None = None
    param: str = field(default="structured", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.json_object, bool):
            raise self._error(f"json_object takes true or false, not {self.json_object!r:.40}")
        asked = [name for name in KINDS if getattr(self, name) not in (None, False) or self._is_false_schema(name)]
        if len(asked) != 1:
            given = "none" if not asked else " and ".join(asked)
            raise self._error(f"structured output takes exactly one of {', '.join(KINDS)}, not {given}")
        for name in ("json", "structural_tag"):
            if name in asked:
                object.__setattr__(self, name, self._json_text(name, getattr(self, name)))
        if self.choice is not None:
            object.__setattr__(self, "choice", self._choices(self.choice))
        for name in ("regex", "grammar"):
            text = getattr(self, name)
            if text is not None and not isinstance(text, str):
                raise self._error(f"{name} takes a string, not {text!r:.40}")
        try:
            size = len(self.source.encode())
        except UnicodeEncodeError as error:
            raise self._error(f"{self.kind} has a lone surrogate, which is no character") from error
        if size > MAX_GRAMMAR_BYTES:
            raise self._error(f"{self.kind} has {size} bytes; at most {MAX_GRAMMAR_BYTES} are taken")

    @property
    def kind(self) -> str:
        """Which of the fields is set."""
        return next(n for n in KINDS if getattr(self, n) not in (None, False))

    @property
    def source(self) -> str:
        """What the field holds, as one text; empty for ``json_object``."""
        value = getattr(self, self.kind)
        if self.kind == "choice":
            return json.dumps(value, ensure_ascii=False)
        return value if isinstance(value, str) else ""

    def _error(self, message: str) -> RequestError:
        return RequestError(message, param=self.param)

    def _is_false_schema(self, name: str) -> bool:
        return name == "json" and self.json is False

    def _choices(self, given: Iterable[str]) -> tuple[str, ...]:
        choices = () if isinstance(given, str) or not hasattr(given, "__iter__") else tuple(given)
        if not choices or not all(isinstance(one, str) for one in choices):
            raise self._error(f"choice takes strings in a list, at least one, not {given!r:.40}")
        return choices

    def _json_text(self, name: str, value: object) -> str:
        try:
            parsed = json.loads(value) if isinstance(value, str) else value
            if not isinstance(parsed, Mapping) and not (name == "json" and isinstance(parsed, bool)):
                raise self._error(f"{name} takes a JSON object, not {parsed!r:.40}")
            self._check_depth(name, parsed)
            return json.dumps(parsed, ensure_ascii=False, allow_nan=False)
        except RecursionError:
            raise self._error(f"{name} is nested more than {MAX_SCHEMA_DEPTH} deep") from None
        except (TypeError, ValueError) as error:
            raise self._error(f"{name} is not valid JSON: {error}") from error

    def _check_depth(self, name: str, value: object) -> None:
        level: list[object] = [value]
        for _ in range(MAX_SCHEMA_DEPTH + 1):
            inner = [v for v in level if isinstance(v, Mapping | list | tuple)]
            if not inner:
                return
            level = [child for v in inner for child in (v.values() if isinstance(v, Mapping) else v)]
        raise self._error(f"{name} is nested more than {MAX_SCHEMA_DEPTH} deep")
