"""Padding to a bucket, as `Bucket` documents it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runner.draws import Draw, make_batch

from octavo.platform import Bucket, StepInput
from octavo.runner.batch import pad


def step(bucket: Bucket) -> StepInput:
    """Two rows of 2 and 1 new tokens in two groups, one sample, tables 3 wide."""
    ints: Any = lambda x: np.array(x, np.int32)  # noqa: E731
    return StepInput(
        tokens=ints([7, 8, 9]),
        positions=ints([4, 5, 8]),
        query_starts=ints([0, 2, 3]),
        context_lens=ints([6, 9]),
        slots=ints([[10, 11, 12], [20, 21, 22]]),
        block_tables=ints([[[1, 2, 0], [3, 4, 5]], [[6, 7, 0], [8, 9, 10]]]),
        sample_rows=ints([2]),
        copies=ints([[1, 2]]),
        sampling=make_batch([Draw()]),
        bucket=bucket,
    )


def test_every_array_grows_to_the_bucket() -> None:
    bucket = Bucket(tokens=5, rows=3, samples=2, blocks=4)
    padded = pad(step(bucket), bucket)
    assert padded.tokens.tolist() == [7, 8, 9, 0, 0]
    assert padded.positions.tolist() == [4, 5, 8, 0, 0]
    assert padded.slots.tolist() == [[10, 11, 12, -1, -1], [20, 21, 22, -1, -1]]
    assert padded.query_starts.tolist() == [0, 2, 3, 3]  # the padding row has no token
    assert padded.context_lens.tolist() == [6, 9, 0]
    assert padded.block_tables.tolist() == [
        [[1, 2, 0, 0], [3, 4, 5, 0], [0, 0, 0, 0]],
        [[6, 7, 0, 0], [8, 9, 10, 0], [0, 0, 0, 0]],
    ]
    assert padded.sample_rows.tolist() == [2, 0]
    assert padded.copies.tolist() == [[1, 2]]
    assert padded.sampling.draws == 1
    assert all(x.dtype == np.int32 for x in padded.graph_inputs().values())


@pytest.mark.parametrize("name", Bucket._fields)
def test_a_size_that_is_free_is_left_alone(name: str) -> None:
    bucket = Bucket(tokens=5, rows=3, samples=2, blocks=4)._replace(**{name: None})
    sizes = {"tokens": 3, "rows": 2, "samples": 1, "blocks": 3, **{k: v for k, v in bucket._asdict().items() if v}}
    padded = pad(step(bucket), bucket)
    assert padded.tokens.shape == padded.positions.shape == (sizes["tokens"],)
    assert padded.slots.shape == (2, sizes["tokens"])
    assert (len(padded.query_starts), len(padded.context_lens)) == (sizes["rows"] + 1, sizes["rows"])
    assert padded.sample_rows.shape == (sizes["samples"],)
    assert padded.block_tables.shape == (2, sizes["rows"], sizes["blocks"])


def test_the_unbounded_bucket_and_an_exact_fit_change_nothing() -> None:
    for bucket in (Bucket(), Bucket(3, 2, 1, 3)):
        original = step(bucket)
        padded = pad(original, bucket)
        for name, values in original.graph_inputs().items():
            assert np.array_equal(padded.graph_inputs()[name], values)
