"""The random numbers: Philox-4x32-10 by its published vectors, and uniforms that are uniform."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.runner.philox import philox, uniforms

# Known answers from the Random123 distribution (kat_vectors): counter, key, result.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(*texts: str) -> tuple[np.ndarray, ...]:
    """Columns of hexadecimal words, one row a text."""
    return tuple(np.array([[int(w, 16) for w in t.split()] for t in texts], np.uint32).T)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    found = philox(words(counter), words(key))  # type: ignore[arg-type]
    assert [f"{int(w[0]):08x}" for w in found] == expected.split()


def test_known_answers_side_by_side() -> None:
    counters, keys, expected = (words(*column) for column in zip(*VECTORS, strict=True))
    found = philox(counters, keys)  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.array(found), np.array(expected))
    assert all(w.dtype == np.uint32 for w in found)


def draw(seed: int = 0, sample_index: int = 0, position: int = 0) -> float:
    arrays = np.array([seed], np.uint64), np.array([sample_index], np.int32), np.array([position], np.int32)
    return float(uniforms(*arrays)[0])


def test_a_uniform_is_made_of_the_documented_bits() -> None:
    seed, sample_index, position = 0x0123456789ABCDEF, 5, 1234
    first, second, _, _ = philox(
        words(f"{position:08x} 0 {sample_index:08x} 0"), words("89abcdef 01234567")  # type: ignore[arg-type]
    )  # fmt: skip
    assert draw(seed, sample_index, position) == ((int(first[0]) >> 5) * 2**26 + (int(second[0]) >> 6)) / 2**53


@pytest.mark.parametrize(
    "changed", [{"seed": 8}, {"seed": 7 + 2**32}, {"seed": 7 + 2**63}, {"sample_index": 1}, {"position": 4}]
)
def test_every_part_of_the_key_and_counter_matters(changed: dict[str, int]) -> None:
    base = {"seed": 7, "sample_index": 0, "position": 3}
    assert draw(**base) == draw(**base)
    assert draw(**base) != draw(**{**base, **changed})


def test_a_draw_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.integers(0, 2**64, 50, dtype=np.uint64)
    samples, positions = rng.integers(0, 1000, (2, 50), dtype=np.int32)
    together = uniforms(seeds, samples, positions)
    alone = [draw(int(s), int(i), int(p)) for s, i, p in zip(seeds, samples, positions, strict=True)]
    assert together.tolist() == alone


@pytest.mark.parametrize("varied", ["seed", "sample_index", "position"])
def test_uniforms_are_uniform_and_independent_along_each_axis(varied: str) -> None:
    """Fixed numbers, so fixed statistics; each bound holds for true uniforms with probability above 0.9999."""
    n = 100_000
    columns = {"seed": np.zeros(n, np.uint64), "sample_index": np.zeros(n, np.int32), "position": np.zeros(n, np.int32)}
    columns[varied] = np.arange(n).astype(columns[varied].dtype)
    u = uniforms(**columns)
    assert u.dtype == np.float64
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * n)
    counts = np.histogram(u, bins=100, range=(0, 1))[0]
    assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 99 + 4 * np.sqrt(2 * 99)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / np.sqrt(n)
    assert len(np.unique(u)) == n
    low_bits = (u * 2**53).astype(np.uint64) & np.uint64(1)  # all 53 bits are random
    assert abs(low_bits.mean() - 0.5) < 4 / np.sqrt(4 * n)
