"""Random inputs that are the same bytes on every system, from a key of words.

Philox-4x32-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, SC 2011), keyed by the SHA-256 of the
words. Only integer arithmetic and exact multiplications make the numbers, no logarithm or cosine: those differ in their
last digit from one library to the next.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
F64 = npt.NDArray[np.float64]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_SHIFT, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox(counters: Words, key: tuple[int, int]) -> Words:
    """Ten rounds on each row of ``counters`` [n, 4]."""
    a, b, c, d = (counters[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(10):
        left, right = a * _M0, c * _M1
        a, b, c, d = (
            (right >> _SHIFT) ^ b ^ np.uint64(k0),
            right & _LOW,
            (left >> _SHIFT) ^ d ^ np.uint64(k1),
            left & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([a, b, c, d], axis=1).astype(np.uint32)


class Rng:
    """A stream of numbers for one key. Draws advance it; ``Rng("a").fork("b")`` is a stream of its own.

    ``words`` name what the numbers are for: suite version, check, case, seed.
    """

    def __init__(self, *words: str | int) -> None:
        self._path = tuple(map(str, words))
        digest = hashlib.sha256("\x1f".join(self._path).encode()).digest()
        self._key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
        self._stream = (int.from_bytes(digest[8:12], "little"), int.from_bytes(digest[12:16], "little"))
        self._at = 0

    def fork(self, *words: str | int) -> Rng:
        """An independent stream below this one; drawing from either does not move the other."""
        return Rng(*self._path, *words)

    def words(self, count: int) -> Words:
        """The next ``count`` 32-bit words (whole counters are used up)."""
        blocks = -(-count // 4)
        counters = np.empty((blocks, 4), np.uint32)
        index = np.arange(self._at, self._at + blocks, dtype=np.uint64)
        counters[:, 0], counters[:, 1] = index & _LOW, index >> _SHIFT
        counters[:, 2], counters[:, 3] = self._stream
        self._at += blocks
        return philox(counters, self._key).reshape(-1)[:count]

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> F64:
        """In (low, high), 32 bits each."""
        drawn = (self.words(int(np.prod(shape, dtype=np.int64))).astype(np.float64) + 0.5) * 2.0**-32
        return (low + (high - low) * drawn).reshape(shape)

    def integers(self, low: int, high: int, *shape: int) -> npt.NDArray[np.int64]:
        """Of low … high - 1, equally likely up to 2**-32 times their number."""
        drawn = self.words(int(np.prod(shape, dtype=np.int64))).astype(np.uint64)
        return (low + ((drawn * np.uint64(high - low)) >> _SHIFT).astype(np.int64)).reshape(shape)

    def normal(self, *shape: int) -> F64:
        """Mean 0, variance 1, nearly normal up to 4.9: the sum of eight 16-bit uniforms, whose variance is exact."""
        count = int(np.prod(shape, dtype=np.int64))
        drawn = self.words(4 * count).astype(np.int64).reshape(count, 4)
        sums = (drawn & 0xFFFF).sum(1) + (drawn >> 16).sum(1)
        variance = 8 * (65536.0**2 - 1) / 12
        values: F64 = (sums - 4 * 65535.0) / np.sqrt(variance)
        return values.reshape(shape)

    def outliers(self, *shape: int, part: float = 0.001, size: float = 30.0) -> F64:
        """`normal`, with one element in a thousand thirty times as large: what real activations look like."""
        values = self.normal(*shape)
        return np.where(self.uniform(*shape) < part, values * size, values)

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """0 … count - 1 in random order."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def choice_signs(self, *shape: int) -> F64:
        """-1 or 1."""
        return (self.integers(0, 2, *shape) * 2 - 1).astype(np.float64)
