"""Alternatives that a device names though the tokenizer has no such id."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from octavo.platform import Samples
from octavo.runner.runner import _without

SAMPLES = Samples(
    np.array([4, 2], np.int32),
    np.array([False, False]),
    np.array([-0.5, -1.0], np.float32),
    np.array([1, 1], np.int32),
    np.array([[9, 4, 7, 1], [2, 3, 9, 0]], np.int32),
    np.array([[-0.25, -0.5, -1.5, -2.5], [-1.0, -1.25, -1.5, -3.0]], np.float32),
)


def test_absent_alternatives_fall_behind_all_others() -> None:
    found = _without(SAMPLES, np.array([7, 8, 9], np.int32))
    assert found.top_ids is not None and found.top_logprobs is not None
    assert found.top_ids.tolist() == [[4, 1, 9, 7], [2, 3, 0, 9]]
    assert found.top_logprobs.tolist() == [[-0.5, -2.5, -np.inf, -np.inf], [-1.0, -1.25, -3.0, -np.inf]]
    assert found.top_logprobs.dtype == np.float32
    assert found.tokens is SAMPLES.tokens and found.ranks is SAMPLES.ranks


def test_samples_that_name_no_absent_id_are_left_as_they_are() -> None:
    assert _without(SAMPLES, np.array([5, 8], np.int32)) is SAMPLES
    plain = replace(SAMPLES, top_ids=None, top_logprobs=None)
    assert _without(plain, np.array([2, 4], np.int32)) is plain
