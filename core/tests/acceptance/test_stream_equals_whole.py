"""A stream brings the tokens, text, logprobs and reasons of the whole answer; a short run of the script beside."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from acceptance.stream_equals_whole import Answer, Choice, compare, differences, draw, serving

pytestmark = pytest.mark.real_model


def test_random_requests_stream_what_they_answer_whole(smollm2_gguf: Path) -> None:
    rng = random.Random(1)
    with serving(smollm2_gguf) as url:
        found, kinds = compare(url, [draw(rng) for _ in range(40)])
    assert not found, "\n".join(found)
    assert kinds["/chat/completions"] > 5 and kinds["/completions"] > 5, kinds
    assert kinds["error"] == 0 and kinds["stop strings"] > 0 and kinds["finish length"] > 0, kinds


def test_a_difference_is_noticed() -> None:
    one = Answer({0: Choice("ab", [1, 2], [], "stop", None)}, (3, 2))
    assert differences(one, one) == []
    assert differences(one, Answer({0: Choice("ab", [1, 2], [], "length", None)}, (3, 2)))
    assert differences(one, Answer({0: Choice("ab\ufffd", [1, 2], [], "stop", None)}, (3, 2)))
    assert differences(one, Answer({}, (3, 2)))
    assert differences(one, Answer(one.choices, (3, 3)))
    assert differences(one, Answer(error=(400, "x")))
