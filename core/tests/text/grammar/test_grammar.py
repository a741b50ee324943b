"""Constraints compiled for real vocabularies: what may come, what is refused and why, and what is kept."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octavo.errors import RequestError
from octavo.runner.masks import allowed_tokens, word_count
from octavo.structured_output import MAX_GRAMMAR_BYTES, MAX_SCHEMA_DEPTH, StructuredOutput
from octavo.text import Tokenizer
from octavo.text.grammar.grammars import Grammars, GrammarState
from octavo.text.grammar.tokens import _Cutter, vocabulary_of

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(real: Tokenizer) -> Iterator[Grammars]:
    made = Grammars(real, real.vocab_size, frozenset(real.eos_token_ids), seconds=60)
    yield made
    made.close()


@pytest.fixture(scope="module")
def small(smollm2: Tokenizer) -> Iterator[Grammars]:
    made = Grammars(smollm2, smollm2.vocab_size, frozenset(smollm2.eos_token_ids), seconds=60)
    yield made
    made.close()


def may(state: GrammarState, vocab: int) -> set[int]:
    words = np.zeros(word_count(vocab), np.uint32)
    assert state.mask(words) is None
    return set(np.flatnonzero(allowed_tokens(words, vocab)).tolist())


def write(state: GrammarState, tokenizer: Tokenizer, text: str) -> bool:
    """Write a text as the tokenizer cuts it; whether the form was complete with its last token."""
    over = False
    for token in tokenizer.encode(text, add_special_tokens=False):
        assert not over and token in may(state, tokenizer.vocab_size), f"{tokenizer.token_bytes(token)!r} of {text!r}"
        over = state.accept(token)
    return over


def takes(grammars: Grammars, tokenizer: Tokenizer, asked: StructuredOutput, text: str) -> bool:
    """Whether the text has the form, byte by byte."""
    state = grammars.start(asked)
    single = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size - 1, -1, -1)}
    for byte in text.encode():
        token = single[bytes([byte])]
        if not state._matcher.validate_tokens([token]):
            return False
        state.accept(token)
    return bool(state._matcher.is_accepting())


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"json": PERSON}, '{"name": "Ada", "age": 7}'),
        ({"json": json.dumps(PERSON)}, '{\n  "name": "Zoë",\n  "age": 0\n}'),
        ({"json_object": True}, '{"anything": [1, {"at": "all"}]}'),
        ({"json": True}, '{"anything": [1, {"at": "all"}]}'),
        ({"regex": r"[a-z]+@example\.com"}, "me@example.com"),
        ({"regex": r"^\d{3}$"}, "123"),
        ({"choice": ["red", "green", "naïve 😀", 'say "hi"']}, "naïve 😀"),
        ({"choice": ["red", "green", "naïve 😀", 'say "hi"']}, 'say "hi"'),
        ({"grammar": 'start: "(" start ")" | "x"'}, "((x))"),
        ({"grammar": 'root ::= "(" root ")" | "x"'}, "((x))"),
        (
            {
                "structural_tag": {
                    "structures": [{"begin": "<f=a>", "schema": PERSON, "end": "</f>"}],
                    "triggers": ["<f"],
                }
            },
            'I call <f=a>{"name": "x", "age": 1}</f> and',
        ),
    ],
)
def test_a_text_of_the_form_may_be_written(
    grammars: Grammars, real: Tokenizer, asked: dict[str, Any], text: str
) -> None:
    form = StructuredOutput(**asked)
    state = grammars.start(form)
    over = write(state, real, text)
    ends = set(real.eos_token_ids)
    assert over != (form.kind == "structural_tag"), "a form is over when nothing may follow"
    if not over:
        assert ends <= may(state, real.vocab_size)
        assert state.accept(min(ends)), "the end is the end"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"json": PERSON}, '{"age": 7}'),
        ({"json": PERSON}, '{"name": "Ada", "age": 10}'),
        ({"json": PERSON}, '{"name": "Ada", "age": 7'),
        ({"json_object": True}, "[1]"),
        ({"regex": "ab"}, "abc"),
        ({"regex": "ab"}, "cab"),
        ({"choice": ["red", "green"]}, "re"),
        ({"grammar": 'start: "(" start ")" | "x"'}, "((x)"),
        (
            {
                "structural_tag": {
                    "structures": [{"begin": "<f=a>", "schema": PERSON, "end": "</f>"}],
                    "triggers": ["<f"],
                }
            },
            "I call <f=b>",
        ),
        (
            {
                "structural_tag": {
                    "structures": [{"begin": "<f=a>", "schema": PERSON, "end": "</f>"}],
                    "triggers": ["<f"],
                }
            },
            'I call <f=a>{"name": "x"}',
        ),
        # what llguidance would let through
        ({"json": {"type": "string", "pattern": '^[^"]*$'}}, '"a\\"b"'),
        ({"json": {"type": "string", "pattern": r"^[\x00-\x1f]$"}}, '"\\\\"'),
        ({"json": {"properties": {"a": {"type": "null"}}}}, '{"\\u0061": 1}'),
        ({"json": {"type": "string"}}, '"\\ud83d"'),
        ({"json": {"type": "number", "exclusiveMinimum": 66.75}}, "66.75000000000000098"),
        ({"json": {"type": "number", "exclusiveMinimum": 66.75}}, "66.75"),
        ({"json": {"type": "number", "exclusiveMaximum": 1e8}}, "99999999.999999999"),
        ({"json": {"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}}, "1"),
        ({"json": {"exclusiveMaximum": 0, "minimum": -0.5}}, "-0"),
        ({"json": {"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]}}, "0"),
        ({"json": {"type": "boolean"}}, "true" + " " * 100),
    ],
)
def test_no_other_text_may(small: Grammars, smollm2: Tokenizer, asked: dict[str, Any], text: str) -> None:
    assert not takes(small, smollm2, StructuredOutput(**asked), text)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json": {"not": {"type": "null"}}}, "not"),
        ({"json": {"x-guidance": {"lenient": True}, "not": {"type": "null"}}}, "not"),
        ({"json": {"type": "string", "format": "idn-email"}}, "idn-email"),
        ({"json": {"$ref": "#/$defs/none"}}, "none"),
        ({"json": {"$ref": "https://example.com/schema"}}, "example.com"),
        ({"json": {"type": "string", "pattern": "(?=a)b"}}, "look-around"),
        ({"json": {"type": "string", "pattern": "[[a]]"}}, "within"),
        ({"json": {"type": "string", "pattern": "[]a]"}}, "escape"),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "Unsatisfiable"),
        ({"json": {"$ref": "#"}}, "no output can satisfy this constraint"),
        ({"json": False}, "schema false"),
        ({"json": {"type": "integer", "maximum": 2**60}}, "2**53"),
        ({"json": {"type": "number", "exclusiveMaximum": 1, "multipleOf": 1e-12}}, "too fine"),
        ({"json": {"type": "object", "minProperties": 2}}, "minProperties 2"),
        ({"json": {"properties": {"deep": {"const": ["\x00"]}}}}, "U+0000"),
        ({"json": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "oneOf"),
        ({"regex": "(a"}, "regex"),
        ({"regex": r"[^\s\S]"}, "no output can satisfy this constraint"),
        ({"regex": "(a{1000}){1000}"}, "too many"),
        ({"grammar": "start: nobody"}, "nobody"),
        ({"grammar": 'start: %json {"type": "array", "uniqueItems": true}'}, "uniqueItems"),
        ({"grammar": 'start: x\nx[temperature=0.5]: "a"'}, "temperature"),
        ({"grammar": "root ::= (("}, "GBNF"),
        ({"grammar": "start: <|nosuch|>"}, "special token"),
        ({"structural_tag": {"format": {}}}, "format"),
        ({"structural_tag": {"structures": [], "triggers": ["<"]}}, "structures"),
        ({"structural_tag": {"structures": [{"begin": "<a>", "end": ""}], "triggers": ["{"]}}, "no trigger"),
        ({"structural_tag": {"structures": [{"begin": "<a>", "schema": {"not": {}}}], "triggers": ["<"]}}, "not"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(small: Grammars, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(why)) as caught:
        small.start(StructuredOutput(**asked, param="response_format"))
    assert caught.value.param == "response_format"
    assert "<state>" not in str(caught.value) and len(str(caught.value)) < 700
    assert small.known(StructuredOutput(**asked)), "asking again costs nothing"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "exactly one of"),
        ({"json_object": False}, "exactly one of"),
        ({"regex": "a", "choice": ["b"]}, "regex and choice"),
        ({"json": "[1]"}, "JSON object"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": 3}, "JSON object"),
        ({"json": {"a": float("nan")}}, "not valid JSON"),
        ({"json": {"a": object()}}, "not valid JSON"),
        ({"json": {"const": "\ud800"}}, "surrogate"),
        ({"json_object": 1}, "true or false"),
        ({"regex": b"a"}, "takes a string"),
        ({"choice": "abc"}, "strings in a list"),
        ({"choice": []}, "at least one"),
        ({"choice": ["a", 1]}, "strings in a list"),
        ({"grammar": "x" * (MAX_GRAMMAR_BYTES + 1)}, "at most"),
        ({"structural_tag": []}, "JSON object"),
    ],
)
def test_what_is_no_form_is_refused_at_once(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        StructuredOutput(**asked)


def test_depth_has_a_limit() -> None:
    def nested(depth: int) -> Any:
        return {"items": nested(depth - 1)} if depth > 1 else {}

    StructuredOutput(json=nested(MAX_SCHEMA_DEPTH))
    for depth in (MAX_SCHEMA_DEPTH + 1, 500):
        with pytest.raises(RequestError, match=f"nested more than {MAX_SCHEMA_DEPTH} deep"):
            StructuredOutput(json=nested(depth))
    with pytest.raises(RequestError, match="deep"):
        StructuredOutput(json='{"items":' * 100_000 + "true" + "}" * 100_000)


def test_forks_go_their_own_ways(small: Grammars, smollm2: Tokenizer) -> None:
    state = small.start(StructuredOutput(choice=["one two", "one three", "one four"]))
    write(state, smollm2, "one")
    other = state.fork()
    assert write(state, smollm2, " two") and write(other, smollm2, " three")


def test_a_form_that_leaves_nothing_open_is_cut_as_the_model_writes_it(small: Grammars, smollm2: Tokenizer) -> None:
    text = "The capital of France is Paris, internationalisation"
    state = small.start(StructuredOutput(choice=[text]))
    for token in smollm2.encode(text, add_special_tokens=False):
        assert may(state, smollm2.vocab_size) == {token}
        state.accept(token)


@pytest.mark.parametrize("text", ["{", " {", "name", '": "', "é", "😀", "\n\n", "<|im_end|>", "a<|im_start|>b", "日本"])
def test_cut_tokens_spell_their_text(real: Tokenizer, text: str) -> None:
    vocabulary = vocabulary_of(real, real.vocab_size, frozenset(real.eos_token_ids))
    for encode in (None, lambda t: real.encode(t, add_special_tokens=False), lambda t: [1, 2, 3]):
        ids = _Cutter(vocabulary, encode)(text.encode())
        assert b"".join(real.token_bytes(t) for t in ids) == text.encode()
        assert not set(ids) & real.special_ids
    assert _Cutter(vocabulary, None)(b"\xf0\x9f") != []  # half a character has tokens too


def test_padding_ids_are_never_allowed(smollm2: Tokenizer) -> None:
    padded = smollm2.vocab_size + 77
    grammars = Grammars(smollm2, padded, frozenset(smollm2.eos_token_ids), seconds=60)
    state = grammars.start(StructuredOutput(regex="(?s:.*)"))
    assert max(may(state, padded)) < smollm2.vocab_size
    grammars.close()


def test_a_form_is_compiled_once_however_many_ask(smollm2: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Grammars(smollm2, smollm2.vocab_size, frozenset(smollm2.eos_token_ids), seconds=60)
    compiled: list[str] = []
    inner = grammars._compile

    def counted(asked: StructuredOutput) -> Any:
        compiled.append(asked.source)
        return inner(asked)

    monkeypatch.setattr(grammars, "_compile", counted)
    asked = StructuredOutput(regex="a+")
    threads = [threading.Thread(target=grammars.start, args=(asked,)) for _ in range(8)]
    assert not grammars.known(asked)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == ["a+"] and grammars.known(StructuredOutput(regex="a+"))
    grammars.close()


def test_what_was_asked_for_longest_ago_is_forgotten_first(smollm2: Tokenizer) -> None:
    room = 3 * 130 * 1024 + 1000
    grammars = Grammars(smollm2, smollm2.vocab_size, frozenset(smollm2.eos_token_ids), cache_bytes=room, seconds=60)
    forms = [StructuredOutput(choice=[str(i)]) for i in range(4)]
    for form in [*forms[:3], forms[0], forms[3]]:
        grammars.start(form)
    assert [grammars.known(form) for form in forms] == [True, False, True, True]
    grammars.close()


def test_time_has_a_limit(smollm2: Tokenizer) -> None:
    grammars = Grammars(smollm2, smollm2.vocab_size, frozenset(smollm2.eos_token_ids), seconds=0.001)
    with pytest.raises(RequestError, match=r"takes more than 0\.001 s"):
        grammars.start(StructuredOutput(choice=[f"choice number {i}" for i in range(3000)]))
    grammars.close()
