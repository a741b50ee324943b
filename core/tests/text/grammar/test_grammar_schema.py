"""What is mended in a schema so that it is enforced exactly, and what of it stays as it was."""

from __future__ import annotations

import re
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.grammar.schema import BadConstraint, exact, mended_pattern


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object", "properties": {"a": {"enum": ["x", 1]}}, "required": ["a"], "additionalProperties": False},
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 9},
        {"type": "number", "minimum": 0.5, "maximum": 1},
        {"type": "string", "pattern": r"^[a-z]\[\]$", "minLength": 2},
        {"const": {"pattern": "[^a]", "exclusiveMinimum": 1, "properties": {"x": {"maximum": 2**60}}}},
        {"properties": {"pattern": {"type": "null"}, "exclusiveMinimum": {"type": "null"}}},
        {"type": "object", "minProperties": 2, "required": ["a"]},
    ],
)
def test_what_is_enforced_as_it_stands_stays(schema: Any) -> None:
    assert exact(schema) == schema


@pytest.mark.parametrize(
    ("pattern", "mended"),
    [
        ('^[^"]*$', '^[^\\x00"]*$'),
        (r"[^\\]", r"[^\x00\\]"),
        (r"[\x00-\x1f]", r"[\x01-\x1f]"),
        (r"[\u0000-\u001f]\0", r"[\x01-\u001f]\0"),
        (r"\P{L}\PL", r"[^\x00\p{L}][^\x00\pL]"),
        (r"\[[^\]]\]", r"\[[^\x00\]]\]"),
        (r"[a^b]", r"[a^b]"),
        ("plain", "plain"),
    ],
)
def test_classes_lose_the_character_that_is_not_written(pattern: str, mended: str) -> None:
    assert mended_pattern(pattern) == mended
    nested = {"items": {"anyOf": [{"pattern": pattern}]}, "patternProperties": {pattern: True}}
    assert exact(nested) == {"items": {"anyOf": [{"pattern": mended}]}, "patternProperties": {mended: True}}


@pytest.mark.parametrize(
    ("pattern", "has"),
    [
        ("[[a]]", "'[' within [ ]; escape it"),
        ("[]a]", "[]; escape the ]"),
        ("[^]a]", "[^]; escape the ]"),
        ("[a&&b]", "'&' within [ ]; escape it"),
        (r"[\P{L}]", r"'\\P{L}' within [ ]; escape it"),
    ],
)
def test_classes_that_dialects_read_differently_are_refused(pattern: str, has: str) -> None:
    with pytest.raises(BadConstraint, match=re.escape(f"the pattern {pattern!r} has {has}, or write it differently")):
        mended_pattern(pattern)


simple = st.lists(
    st.sampled_from(['[^"]', "[^a]", r"[^\s]", "[a-z]", r"\d", r"\.", "x", "(?:a|b)", ".", r"[\x00-\x1f]", "[^\\]x]"]),
    min_size=1,
    max_size=4,
).map("".join)


@given(simple, st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=4))
@settings(max_examples=500)
def test_a_mended_pattern_matches_the_same_texts_without_u0000(pattern: str, text: str) -> None:
    before, after = re.compile(pattern), re.compile(mended_pattern(pattern))
    assert bool(before.fullmatch(text)) == bool(after.fullmatch(text))


@given(
    st.floats(-(2.0**52), 2.0**52) | st.integers(-(10**9), 10**9),
    st.sampled_from(["exclusiveMinimum", "exclusiveMaximum"]),
    st.integers(-3, 3),
)
@settings(max_examples=500)
def test_no_number_that_passes_is_read_as_the_bound(bound: float, key: str, offset: int) -> None:
    """A decimal that is a multiple of the step and inside the bounds, by its digits and theirs."""

    made = exact({"type": "number", key: bound})
    step = Decimal(repr(made["multipleOf"]))
    around = (Decimal(repr(bound)) / step).to_integral_value(ROUND_FLOOR) + offset
    number = around * step
    sign = 1 if key == "exclusiveMinimum" else -1
    inclusive = made.get("minimum" if sign == 1 else "maximum")
    passes = (
        sign * number >= sign * Decimal(repr(inclusive))
        if inclusive is not None
        else sign * number > sign * Decimal(repr(bound))
    )
    assert not passes or sign * float(number) > sign * bound
