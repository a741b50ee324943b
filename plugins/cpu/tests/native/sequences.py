"""Sequences in a pool of blocks, and what attention over them is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from native.kernels import Attention
from native.numbers16 import F32, F64, through_bf16, to_bf16

NAN16 = np.uint16(0x7FC1)


@dataclass(frozen=True)
class Sequence:
    """Keys and values of one key-value head, [length, head_dim], in the pool's precision."""

    keys: F32
    values: F32

    @property
    def length(self) -> int:
        return len(self.keys)


def random_sequence(rng: np.random.Generator, length: int, head_dim: int) -> Sequence:
    keys, values = rng.standard_normal((2, length, head_dim)).astype(np.float32)
    return Sequence(through_bf16(keys), through_bf16(values))


def unit(
    rng: np.random.Generator, sequence: Sequence, queries: F32, positions: list[int], *, block_size: int = 16,
    window: int = 0, scale: float | None = None, softcap: float = 0.0, sinks: F32 | None = None, spare: int = 3,
    poison_keys: bool = True, poison_values: bool = True,
) -> Attention:  # fmt: skip
    """One unit of attention. The blocks lie in any order among others that are not the sequence's; what is not
    written is NaN where it is poisoned, and an ordinary number elsewhere. A block that the window has left is no longer
    the sequence's: its entry in the table names another."""
    length, head_dim = sequence.keys.shape
    used = -(-length // block_size)
    order = rng.permutation(used + spare)
    table = np.full(used + 2, 1 << 28, np.int32)  # entries beyond the sequence name no block
    table[:used] = order[:used]
    k = np.full(((used + spare) * block_size, head_dim), NAN16 if poison_keys else 0x4000, np.uint16)
    v = np.full(((used + spare) * block_size, head_dim), NAN16 if poison_values else 0x4000, np.uint16)
    at = order[np.arange(length) // block_size] * block_size + np.arange(length) % block_size
    k[at], v[at] = to_bf16(sequence.keys), to_bf16(sequence.values)
    k = k.reshape(-1, block_size // 16, 16, head_dim // 2, 2).transpose(0, 1, 3, 2, 4)
    v = v.reshape(-1, block_size // 2, 2, head_dim).transpose(0, 1, 3, 2)
    last = np.array(positions, np.int32)
    first = np.maximum(0, last - window + 1).astype(np.int32) if window else np.zeros_like(last)
    if spare:
        table[: first.min() // block_size] = order[used]
    return Attention(
        queries, last, first, table, np.ascontiguousarray(k), np.ascontiguousarray(v),
        float(np.float32(head_dim**-0.5 if scale is None else scale)), softcap, sinks,
    )  # fmt: skip


def only(case: Attention, vector: int) -> Attention:
    """The unit with one of its vectors alone."""
    part = slice(vector, vector + 1)
    sinks = None if case.sinks is None else case.sinks[part].copy()
    return replace(
        case,
        queries=case.queries[part].copy(),
        positions=case.positions[part].copy(),
        first=case.first[part].copy(),
        sinks=sinks,
    )


def exact(case: Attention, sequence: Sequence) -> F64:
    """Attention in float64 on the numbers that the pool holds and on queries in its precision."""
    return _attend(case, sequence, np.float64).astype(np.float64)


def yardstick(case: Attention, sequence: Sequence) -> F32:
    """The same in float32, with the softmax's weights in bf16, as the kernels store them."""
    return _attend(case, sequence, np.float32).astype(np.float32)


def bound(case: Attention, sequence: Sequence) -> F64:
    """What each element may be off: half a bf16 unit of each weight, in the sum and in what it is divided by, and the
    float32 rounding of scores, which the exponential takes to the weights."""
    queries = through_bf16(case.queries).astype(np.float64)
    rows = []
    for v, query in enumerate(queries):
        seen = slice(case.first[v], case.positions[v] + 1)
        weights, total = _softmax(_scores(case, query, sequence.keys[seen].astype(np.float64)), case, v)
        values = np.abs(sequence.values[seen].astype(np.float64))
        size = np.abs(query) @ np.abs(sequence.keys[seen].astype(np.float64)).T * abs(case.scale)
        slack = 2.0**-8 + size.max() * 2.0**-24 * (len(query) + 4)
        rows.append(weights @ values / total * slack)
    return np.stack(rows)


def _attend(case: Attention, sequence: Sequence, kind: type) -> np.ndarray:
    queries = through_bf16(case.queries).astype(kind)
    keys, values = sequence.keys.astype(kind), sequence.values.astype(kind)
    rows = []
    for v, query in enumerate(queries):
        seen = slice(case.first[v], case.positions[v] + 1)
        weights, total = _softmax(_scores(case, query, keys[seen]), case, v)
        if kind is np.float32:
            sink = total - weights.sum(dtype=np.float32)
            weights = through_bf16(weights)
            total = weights.sum(dtype=np.float32) + (sink if case.sinks is not None else 0)
        rows.append((weights @ values[seen]) / total)
    return np.stack(rows)


def _scores(case: Attention, query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    scores = (keys @ query) * keys.dtype.type(np.float32(case.scale))
    if case.softcap:
        cap = keys.dtype.type(np.float32(case.softcap))
        scores = cap * np.tanh(scores / cap)
    return scores


def _softmax(scores: np.ndarray, case: Attention, v: int) -> tuple[np.ndarray, np.ndarray]:
    """(weights relative to the largest, their sum with the sink's)."""
    peak = scores.max()
    if case.sinks is not None:
        peak = max(peak, scores.dtype.type(case.sinks[v]))
    weights = np.exp(scores - peak)
    total = weights.sum(dtype=scores.dtype)
    if case.sinks is not None:
        total = total + np.exp(scores.dtype.type(case.sinks[v]) - peak)
    return weights, total
