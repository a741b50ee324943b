"""Counter-based random numbers: one uniform per (seed, sample, position), whatever was drawn before or beside it.

Philox-4x32-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, SC 2011). No state, so a preempted,
resumed or re-batched request draws what it would have drawn anyway, and a native sampler can draw the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10

Words = npt.NDArray[np.uint32]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, Words, Words, Words]:
    """Ten rounds over equal-shaped arrays of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    with np.errstate(over="ignore"):  # the key schedule is addition modulo 2**32
        for _ in range(_ROUNDS):
            p0 = c0.astype(np.uint64) * _MULTIPLIERS[0]
            p1 = c2.astype(np.uint64) * _MULTIPLIERS[1]
            c0, c1, c2, c3 = (
                (p1 >> _HALF).astype(np.uint32) ^ c1 ^ k0,
                (p1 & _LOW).astype(np.uint32),
                (p0 >> _HALF).astype(np.uint32) ^ c3 ^ k1,
                (p0 & _LOW).astype(np.uint32),
            )
            k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return c0, c1, c2, c3


def uniforms(
    seed: npt.NDArray[np.uint64], sample_index: npt.NDArray[np.int32], position: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each draw.

    Key: the seed's low and high words. Counter: (position, 0, sample_index, 0). The first two words of the result
    give the fraction, 27 bits of the first above 26 of the second.
    """
    key = ((seed & _LOW).astype(np.uint32), (seed >> _HALF).astype(np.uint32))
    zero = np.zeros(len(seed), np.uint32)
    first, second, _, _ = philox((position.astype(np.uint32), zero, sample_index.astype(np.uint32), zero), key)
    high, low = first >> np.uint32(5), second >> np.uint32(6)
    return (high * 67108864.0 + low) / 9007199254740992.0
