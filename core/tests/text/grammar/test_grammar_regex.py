"""Classes of a ``regex`` are ASCII, unless it asks for Unicode."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from octavo.text.grammar.regex import ascii_classes
from octavo.text.grammar.schema import BadConstraint
from octavo.text.grammar.source import ll_grammar
from octavo.text.grammar.tokens import Vocabulary, ll_tokenizer

BYTES = ll_tokenizer(Vocabulary((*(bytes([byte]) for byte in range(256)), b"</s>"), (256,), (256,)), fast=False)


def accepts(form: str, source: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, ll_grammar(form, source, {}), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize("pattern", [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\d]", r"[^\w]", r"[\s\d_]", r"[-\d]"])
def test_classes_are_those_of_ascii(pattern: str) -> None:
    judge = re.compile(pattern, re.ASCII)
    for character in "5a_ -\t\n٣é٠\u00a0\u2028\u017f":
        assert accepts("regex", pattern, character) == bool(judge.fullmatch(character)), character
    assert accepts("regex", f"({pattern})+", "") is False


def test_unicode_is_there_for_the_asking() -> None:
    assert accepts("regex", r"(?u)\d", "٣")
    assert accepts("regex", r"\p{Nd}", "٣")
    assert accepts("regex", r"^\d{4}$", "1969")
    assert not accepts("regex", r"^\d{4}$", "1٩69")


def test_patterns_of_schemas_are_ecma_script_s() -> None:
    for pattern, text, valid in (("^\\d$", "٣", False), ("^\\w$", "é", False), ("^\\s$", "\u00a0", True)):
        schema = json.dumps({"type": "string", "pattern": pattern})
        assert accepts("json", schema, json.dumps(text, ensure_ascii=False)) == valid


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"\\d\d", r"\\d[0-9]"),
        (r"[\\\d]", r"[\\[0-9]]"),
        (r"\[\d\]", r"\[[0-9]\]"),
        (r"\p{L}\x41é", r"\p{L}\x41é"),
        (r"[\]\w]-\d", r"[\]" + r"[0-9A-Za-z_]]-[0-9]"),
    ],
)
def test_only_the_classes_are_written_out(pattern: str, written: str) -> None:
    assert ascii_classes(pattern) == written


@pytest.mark.parametrize("pattern", [r"[!-\d]", r"[a-\w]", r"[a-z-\s]"])
def test_a_range_up_to_a_class_is_refused(pattern: str) -> None:
    with pytest.raises(BadConstraint, match=r"has a range up to .*; escape the -"):
        ascii_classes(pattern)


@given(st.text(alphabet=r"ab\[]-^dws.(+", max_size=12))
def test_any_text_is_rewritten_or_refused(pattern: str) -> None:
    try:
        written = ascii_classes(pattern)
    except BadConstraint:
        return
    assert not re.search(r"(?<!\\)(?:\\\\)*\\[dwsDWS]", written)
