"""SamplingParams: what is accepted, what is refused and how, and what becomes of stops."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from octavo.errors import RequestError
from octavo.sampling import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_N, MAX_STOP_STRINGS, SamplingParams


def test_defaults_are_those_of_the_api() -> None:
    p = SamplingParams()
    assert (p.n, p.temperature, p.top_p, p.top_k, p.min_p, p.max_tokens, p.min_tokens) == (1, 1.0, 1.0, 0, 0.0, 16, 0)
    assert (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) == (0.0, 0.0, 1.0)
    assert (p.logit_bias, p.seed, p.stop, p.stop_token_ids, p.logprobs, p.prompt_logprobs) == (None,) * 6
    assert (p.skip_special_tokens, p.detokenize, p.include_stop_str_in_output, p.ignore_eos) == (
        True,
        True,
        False,
        False,
    )
    assert (p.stop_strings, p.stop_ids) == ((), frozenset())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1), ("n", MAX_N),
        ("temperature", 0.0), ("temperature", 0), ("temperature", 100.0),
        ("top_p", 1e-9), ("top_p", 1), ("top_p", 1.0),
        ("top_k", -1), ("top_k", 0), ("top_k", 2**70),
        ("min_p", 0.0), ("min_p", 1.0),
        ("presence_penalty", -2.0), ("presence_penalty", 2.0),
        ("frequency_penalty", -2), ("frequency_penalty", 2),
        ("repetition_penalty", 1e-3), ("repetition_penalty", 100.0),
        ("seed", None), ("seed", 0), ("seed", -(2**63)), ("seed", 2**63 - 1),
        ("max_tokens", None), ("max_tokens", 0), ("max_tokens", 10**9),
        ("min_tokens", 0), ("min_tokens", 16),
        ("logprobs", None), ("logprobs", 0), ("logprobs", MAX_LOGPROBS),
        ("prompt_logprobs", None), ("prompt_logprobs", 0), ("prompt_logprobs", MAX_LOGPROBS),
        ("logit_bias", None), ("logit_bias", {}), ("logit_bias", {0: -100, 5: 100.0}),
        ("logit_bias", dict.fromkeys(range(MAX_LOGIT_BIAS), 1.0)),
        ("stop", None), ("stop", []), ("stop", ["x"] * MAX_STOP_STRINGS),
        ("stop_token_ids", None), ("stop_token_ids", []), ("stop_token_ids", [0, 7]),
        # NumPy's scalars are numbers.
        ("seed", np.int64(3)), ("temperature", np.float32(0.5)), ("top_k", np.int32(4)),
        ("logit_bias", {np.int64(1): np.float64(2)}),
    ],
)  # fmt: skip
def test_limits_are_inclusive(field: str, value: Any) -> None:
    SamplingParams(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n", 0, "in [1, 1024], not 0"), ("n", MAX_N + 1, "not 1025"), ("n", 2.0, "an integer, not 2.0"),
        ("n", None, "an integer, not None"),
        ("temperature", -0.01, "in [0, 100], not -0.01"), ("temperature", 100.5, "not 100.5"),
        ("temperature", math.nan, "not nan"), ("temperature", math.inf, "not inf"),
        ("temperature", "1", "a number, not '1'"),
        ("temperature", 10**400, "in [0, 100]"), ("temperature", None, "a number, not None"),
        ("top_p", 0.0, "in (0, 1], not 0.0"), ("top_p", 1.01, "not 1.01"), ("top_p", math.nan, "not nan"),
        ("top_k", -2, "at least -1, not -2"), ("top_k", 1.5, "an integer, not 1.5"),
        ("min_p", -0.1, "in [0, 1], not -0.1"), ("min_p", 1.1, "not 1.1"),
        ("presence_penalty", 2.1, "in [-2, 2], not 2.1"), ("presence_penalty", -2.1, "not -2.1"),
        ("frequency_penalty", 2.1, "in [-2, 2], not 2.1"), ("frequency_penalty", -2.1, "not -2.1"),
        ("repetition_penalty", 0.0, "in [0.001, 100], not 0.0"), ("repetition_penalty", 1e-300, "not 1e-300"),
        ("repetition_penalty", -1, "not -1"),
        ("repetition_penalty", 101, "not 101"),
        ("seed", 2**63, "not 9223372036854775808"), ("seed", -(2**63) - 1, "not -9223372036854775809"),
        ("seed", 1.0, "an integer, not 1.0"),
        ("max_tokens", -1, "at least 0, not -1"), ("max_tokens", 3.5, "an integer, not 3.5"),
        ("min_tokens", -1, "at least 0, not -1"), ("min_tokens", 17, "at most max_tokens (16), not 17"),
        ("logprobs", -1, "in [0, 64], not -1"), ("logprobs", MAX_LOGPROBS + 1, "not 65"),
        ("logprobs", 1.0, "an integer"),
        ("prompt_logprobs", -1, "in [0, 64], not -1"), ("prompt_logprobs", MAX_LOGPROBS + 1, "not 65"),
        ("logit_bias", {-1: 1.0}, "has -1, which is no token id"), ("logit_bias", {"5": 1.0}, "has '5'"),
        ("logit_bias", {3: 100.5}, "of token 3 must be in [-100, 100], not 100.5"),
        ("logit_bias", {3: -101}, "not -101"),
        ("logit_bias", {3: math.nan}, "not nan"), ("logit_bias", {3: "1"}, "of token 3 must be a number, not '1'"),
        ("logit_bias", dict.fromkeys(range(MAX_LOGIT_BIAS + 1), 1.0), "at most 16384 entries, not 16385"),
        ("stop", ["a", ""], "must not be empty"), ("stop", "", "must not be empty"),
        ("stop", ["a", 3], "strings, not 3"),
        ("stop", ["x" * 4097], "at most 4096 characters, not 4097"),
        ("stop", ["x"] * (MAX_STOP_STRINGS + 1), "at most 256 strings, not 257"),
        ("visible_special_ids", [-1], "has -1, which is no token id"),
        ("stop_token_ids", [4, -1], "has -1, which is no token id"), ("stop_token_ids", ["4"], "has '4'"),
    ],
)  # fmt: skip
def test_a_refusal_names_field_value_and_limit(field: str, value: Any, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        SamplingParams(**{field: value})
    assert refusal.value.param == field
    assert str(refusal.value).startswith(field)
    assert message in str(refusal.value)


def test_min_tokens_is_bounded_by_max_tokens_where_there_is_one() -> None:
    assert SamplingParams(min_tokens=10**6, max_tokens=None).min_tokens == 10**6
    with pytest.raises(RequestError, match="min_tokens"):
        SamplingParams(min_tokens=1, max_tokens=0)


@pytest.mark.parametrize(
    ("stop", "strings"),
    [
        (None, ()), ("END", ("END",)), (["a", "bc"], ("a", "bc")), (("x",), ("x",)),
        (iter(["p", "q"]), ("p", "q")), ([], ()),
    ],
)  # fmt: skip
def test_stop_becomes_a_tuple(stop: Any, strings: tuple[str, ...]) -> None:
    params = SamplingParams(stop=stop)
    assert params.stop_strings == strings
    assert params.stop == (None if stop is None else strings)


def test_stop_ids_are_a_set() -> None:
    params = SamplingParams(stop_token_ids=iter([5, 3, 5]))
    assert params.stop_ids == {3, 5}
    assert params.stop_token_ids == (5, 3, 5)


def test_a_changed_copy_keeps_the_stops() -> None:
    params = SamplingParams(stop=(s for s in "ab"), stop_token_ids=(i for i in (1, 2)))
    copy = replace(params, temperature=0.5)
    assert (copy.stop_strings, copy.stop_ids, copy.temperature) == (("a", "b"), {1, 2}, 0.5)
    assert replace(copy, temperature=1.0) == params


def test_stop_strings_need_text() -> None:
    with pytest.raises(RequestError, match="stop strings need detokenize=True") as refusal:
        SamplingParams(stop="x", detokenize=False)
    assert refusal.value.param == "stop"
    assert SamplingParams(stop_token_ids=[1], detokenize=False).stop_ids == {1}


def test_parameters_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'temperature'"):
        SamplingParams().temperature = 0.5  # type: ignore[misc]


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=1e-9).greedy
    assert not SamplingParams(top_k=1).greedy
