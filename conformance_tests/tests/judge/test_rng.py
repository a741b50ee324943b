"""Inputs are the same everywhere and for ever."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from octavo_conformance.judge.rng import Rng, philox

# Counter, key and result of Philox-4x32-10 as its authors publish them.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, int], result: tuple[int, ...]
) -> None:
    assert philox(np.array([counter], np.uint32), key)[0].tolist() == list(result)


def test_a_stream_is_these_bytes() -> None:
    """Bundles are reproducible by their seed only as long as this holds."""
    rng = Rng("1.0", "att.prefill_causal", "randn", "0")
    drawn = [rng.words(7), rng.uniform(3, 5), rng.integers(-3, 100, 11), rng.normal(1000), rng.outliers(500)]
    whole = hashlib.sha256(b"".join(np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).tobytes() for a in drawn))
    assert whole.hexdigest() == "2c91251f24fef1c830a1b6a64512dec452ff09aa91d914bda0c8c400acd85457"


def test_streams_are_independent_and_drawing_advances_them() -> None:
    first, second = Rng("a", "b"), Rng("a", "c")
    assert not np.array_equal(first.words(8), second.words(8))
    assert not np.array_equal(Rng("ab").words(8), Rng("a", "b").words(8))
    fresh = Rng("a", "b")
    assert np.array_equal(fresh.fork("x").words(4), Rng("a", "b", "x").words(4))
    together = Rng("a", "b").words(8)
    assert np.array_equal(np.concatenate([fresh.words(4), fresh.words(4)]), together)


def test_distributions_are_what_they_say() -> None:
    rng = Rng("moments")
    values = rng.normal(200_000)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert 4 < np.abs(values).max() < 4.95
    assert set(rng.integers(2, 5, 1000).tolist()) == {2, 3, 4}
    assert sorted(rng.permutation(50).tolist()) == list(range(50))
    inside = rng.uniform(1000, low=-1, high=3)
    assert -1 < inside.min() < -0.9 and 2.9 < inside.max() < 3
