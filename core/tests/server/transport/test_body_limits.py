"""The limits on a body: the largest that is allowed passes, one more is refused with the field, the limit, the cure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server.conftest import Served
from server.limited_server import serving
from server_fake import FakeEngine

from octavo.server.transport.body_limits import depth_exceeds
from octavo.server.transport.limits import Limits

LIMITS = Limits(
    json_depth=8, text_characters=900, json_containers=40, items=10, prompts=3, sequences=6, n=4, best_of=3,
    logprobs=2, logit_bias=2, stop_strings=2, bad_words=2, word_characters=5, token_ids=3,
    tools=2, schema_bytes=100, schema_depth=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def limited() -> Iterator[Served]:
    with serving(FakeEngine(), LIMITS) as served:
        yield served


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("json_depth", "", {"x": nested(7)}, {"x": nested(8)}),
    ("json_containers", "", {"x": [[[]] * 9] * 3, "y": '\\"[{\\\\' * 50}, {"x": [[[]] * 9] * 4}),
    ("json_containers", "", {"y": "\\", "x": "[{" * 50}, {"y": "\\", "x": [[[]] * 9] * 4}),
    ("text_characters", "", {"prompt": "a" * 900}, {"prompt": "a" * 901}),
    ("text_characters", "", {"prompt": "é" * 400, "x": ["é" * 400, {"y": "é" * 90}]}, {"prompt": "é" * 900, "x": "y"}),
    ("items", "", dict.fromkeys("abcdefghi", 1), dict.fromkeys("abcdefghij", 1)),
    ("items", "x", {"x": [1] * 10}, {"x": [1] * 11}),
    ("items", "x", {"x": dict.fromkeys("abcdefghij", 1)}, {"x": dict.fromkeys("abcdefghijk", 1)}),
    ("items", "input", {"input": [{}] * 10}, {"input": [{}] * 11}),
    ("prompts", "prompt", {"prompt": ["a"] * 3}, {"prompt": ["a"] * 4}),
    ("prompts", "prompt", {"prompt": [[1], [2], [3]]}, {"prompt": [[1]] * 4}),
    ("prompts", "input", {"input": ["a"] * 3}, {"input": ["a"] * 4}),
    ("sequences", "n", {"prompt": ["a"] * 2, "n": 3}, {"prompt": ["a"] * 2, "n": 4}),
    ("sequences", "best_of", {"prompt": ["a"] * 2, "n": 3, "best_of": 3}, {"prompt": ["a"] * 3, "best_of": 3}),
    ("n", "n", {"n": 4}, {"n": 5}),
    ("n", "n", {"n": 4}, {"n": 10**4000}),
    ("best_of", "best_of", {"n": 3, "best_of": 3}, {"best_of": 4}),
    ("logprobs", "logprobs", {"logprobs": 2}, {"logprobs": 3}),
    ("logprobs", "top_logprobs", {"top_logprobs": 2}, {"top_logprobs": 3}),
    ("logprobs", "prompt_logprobs", {"prompt_logprobs": None}, {"prompt_logprobs": 3}),
    ("logit_bias", "logit_bias", {"logit_bias": {"1": 1, "2": 1}}, {"logit_bias": {"1": 1, "2": 1, "3": 1}}),
    ("stop_strings", "stop", {"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}),
    ("stop_strings", "stop_sequences", {"stop_sequences": ["a"]}, {"stop_sequences": ["a", "b", "c"]}),
    ("bad_words", "bad_words", {"bad_words": []}, {"bad_words": ["a", "b", "c"]}),
    ("word_characters", "stop", {"stop": "aéaéa"}, {"stop": "aaaaaa"}),
    ("word_characters", "stop", {"stop": ["aaaaa", "b"]}, {"stop": ["b", "aaaaaa"]}),
    ("word_characters", "bad_words", {"bad_words": []}, {"bad_words": ["aaaaaa"]}),
    ("token_ids", "stop_token_ids", {"stop_token_ids": [1, 2, 3]}, {"stop_token_ids": [1, 2, 3, 4]}),
    ("token_ids", "allowed_token_ids", {"allowed_token_ids": []}, {"allowed_token_ids": [1, 2, 3, 4]}),
    ("tools", "tools", {"tools": [{}] * 2}, {"tools": [{}] * 3}),
    ("schema_bytes", "response_format", {"user": "x" * 200}, {"response_format": {"schema": "x" * 100}}),
    ("schema_bytes", "regex", {"text": "x" * 200}, {"regex": "x" * 100}),
    ("schema_bytes", "tools[1]", {}, {"tools": [{}, {"x": "x" * 100}]}),
    ("schema_depth", "response_format", {"x": nested(6)}, {"response_format": nested(5)}),
    ("schema_depth", "structured_outputs", {"x": nested(6)}, {"structured_outputs": nested(5)}),
    ("schema_depth", "tools[0]", {}, {"tools": [nested(5)]}),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "param", "_allowed", "refused"), CASES)
def test_one_more_is_refused(
    limited: Served, limit: str, param: str, _allowed: dict[str, Any], refused: dict[str, Any]
) -> None:
    reply = limited.complete(**refused)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "limit_exceeded", param or None)
    assert limit in reply.error["message"], reply.error


@pytest.mark.parametrize(("limit", "_param", "allowed", "_refused"), CASES)
def test_as_many_as_are_allowed_pass(
    limited: Served, limit: str, _param: str, allowed: dict[str, Any], _refused: dict[str, Any]
) -> None:
    reply = limited.complete(**allowed)
    assert reply.status == 200 or reply.error["code"] != "limit_exceeded", reply.error


def test_a_prompt_of_token_ids_is_bounded_by_the_context_alone(limited: Served) -> None:
    assert limited.complete(prompt=[1] * 500).status == 200


def test_depth_counts_arrays_and_objects() -> None:
    for depth in range(5):
        assert not depth_exceeds(nested(depth), depth)
        assert depth == 0 or depth_exceeds(nested(depth), depth - 1)
    assert depth_exceeds([1, [[]], {}], 2)


def test_brackets_in_texts_are_no_nesting(limited: Served) -> None:
    assert limited.complete(prompt="[{" * 400).status == 200


def test_a_list_of_wrong_elements_costs_one_error(limited: Served) -> None:
    reply = limited.request("POST", "/v1/chat/completions", {"messages": [1] * 10})
    assert (reply.status, reply.error["param"]) == (400, "messages[0]")
