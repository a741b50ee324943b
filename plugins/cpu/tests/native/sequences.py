"""Sequences in a pool of blocks, and what attention over them is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from native.kernels import Attention
from native.numbers16 import F32, F64, through_bf16, to_bf16

NAN16 = np.uint16(0x7FC1)
KINDS = ("bf16", "int8", "f32", "f16")
"""Of caches, in the order of the library's KVFormat."""


@dataclass(frozen=True)
class Sequence:
    """Keys and values of one key-value head, [length, head_dim], in the pool's precision."""

    keys: F32
    values: F32

    @property
    def length(self) -> int:
        return len(self.keys)


def random_sequence(rng: np.random.Generator, length: int, head_dim: int, kind: str = "bf16") -> Sequence:
    keys, values = rng.standard_normal((2, length, head_dim)).astype(np.float32)
    if kind == "f16":
        return Sequence(*(a.astype(np.float16).astype(np.float32) for a in (keys, values)))
    return Sequence(keys, values) if kind == "f32" else Sequence(through_bf16(keys), through_bf16(values))


def unit(
    rng: np.random.Generator, sequence: Sequence, queries: F32, positions: list[int], *, block_size: int = 16,
    window: int = 0, scale: float | None = None, softcap: float = 0.0, sinks: F32 | None = None, spare: int = 3,
    poison_keys: bool = True, poison_values: bool = True, kind: str = "bf16",
) -> Attention:  # fmt: skip
    """One unit of attention. The blocks lie in any order among others that are not the sequence's; what is not
    written is NaN where it is poisoned, and an ordinary number elsewhere. A block that the window has left is no longer
    the sequence's: its entry in the table names another."""
    length, head_dim = sequence.keys.shape
    used = -(-length // block_size)
    order = rng.permutation(used + spare)
    table = np.full(used + 2, 1 << 28, np.int32)  # entries beyond the sequence name no block
    table[:used] = order[:used]
    at = order[np.arange(length) // block_size] * block_size + np.arange(length) % block_size
    size = ((used + spare) * block_size, head_dim)
    if kind == "bf16":
        k = np.full(size, NAN16 if poison_keys else 0x4000, np.uint16)
        v = np.full(size, NAN16 if poison_values else 0x4000, np.uint16)
        k[at], v[at] = to_bf16(sequence.keys), to_bf16(sequence.values)
        k = k.reshape(-1, block_size // 16, 16, head_dim // 2, 2).transpose(0, 1, 3, 2, 4)
        v = v.reshape(-1, block_size // 16, 8, 2, head_dim).transpose(0, 1, 2, 4, 3)
    else:
        stored = np.float32 if kind == "f32" else np.float16
        k = np.full(size, np.nan if poison_keys else 2.0, stored)
        v = np.full(size, np.nan if poison_values else 2.0, stored)
        k[at], v[at] = sequence.keys, sequence.values
        k = k.reshape(-1, block_size // 16, 16, head_dim).transpose(0, 1, 3, 2)
        v = v.reshape(-1, block_size // 16, 16, head_dim)
    last = np.array(positions, np.int32)
    first = np.maximum(0, last - window + 1).astype(np.int32) if window else np.zeros_like(last)
    if spare:
        table[: first.min() // block_size] = order[used]
    return Attention(
        queries, last, first, table, _parts(k), _parts(v),
        float(np.float32(head_dim**-0.5 if scale is None else scale)), softcap, sinks, KINDS.index(kind),
    )  # fmt: skip


def _parts(elements: np.ndarray) -> np.ndarray:
    """[blocks, block_size / 16, bytes of a part]"""
    return np.ascontiguousarray(elements).reshape(*elements.shape[:2], -1).view(np.uint8)


def random_int8_unit(
    rng: np.random.Generator, length: int, queries: F32, positions: list[int], *, block_size: int = 16
) -> tuple[Attention, Attention]:
    """One unit over random codes and scales, and the same over the bf16 numbers that they stand for."""
    head_dim = queries.shape[1]
    used = -(-length // block_size)
    order = rng.permutation(used + 2)
    table = np.full(used + 1, 1 << 28, np.int32)
    table[:used] = order[:used]
    parts = (used + 2) * block_size // 16
    codes = rng.integers(-127, 128, (2, parts, 16, head_dim)).astype(np.int8)  # [keys or values, part, position, dim]
    scales = [
        through_bf16((rng.random((parts, 16, head_dim // group)) * 0.02 + 1e-4).astype(np.float32)) for group in (8, 16)
    ]
    owned = np.zeros((used + 2) * block_size, bool)
    owned[(order[np.arange(length) // block_size] * block_size + np.arange(length) % block_size)] = True
    for scale in scales:  # what is not written has a scale of NaN
        scale[~owned.reshape(parts, 16)] = np.nan
    numbers = [
        through_bf16(code.astype(np.float32) * np.repeat(scale, group, -1))
        for code, scale, group in zip(codes, scales, (8, 16), strict=True)
    ]

    def ordered(elements: np.ndarray, keys: bool) -> np.ndarray:
        pairs = elements.reshape(parts, 16, head_dim // 2, 2) if keys else elements.reshape(parts, 8, 2, head_dim)
        return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3) if keys else pairs.transpose(0, 1, 3, 2))

    small, wide = [], []
    room = head_dim * (16 + 4)  # bytes of a part of keys, and values padded to it: one stride serves both
    for number, code, scale, keys in zip(numbers, codes, scales, (True, False), strict=True):
        wide.append(to_bf16(ordered(number, keys)).reshape(-1, block_size // 16, 16 * head_dim).view(np.uint8))
        data = np.full((parts, head_dim * (16 + (4 if keys else 2))), 0xA5, np.uint8)
        data[:, : head_dim * 16] = ordered(code, keys).reshape(parts, -1).view(np.uint8)
        data[:, head_dim * 16 :] = (
            np.ascontiguousarray(to_bf16(scale).transpose(0, 2, 1)).reshape(parts, -1).view(np.uint8)
        )
        blocks = np.full((used + 2, room * block_size // 16), 0xA5, np.uint8)
        blocks[:, : data.size // (used + 2)] = data.reshape(used + 2, -1)
        small.append(blocks.reshape(used + 2, block_size // 16, room))
    last = np.array(positions, np.int32)
    case = Attention(
        queries, last, np.zeros_like(last), table, small[0], small[1], float(np.float32(head_dim**-0.5)), format=1
    )
    return case, replace(case, keys=wide[0], values=wide[1], format=0)


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
    """What each element may be off: half a unit of each weight (bf16, or with caches of floats some of float32, for the
    exponential and the sums), in the sum and in what it is divided by, and the float32 rounding of scores, which the
    exponential takes to the weights."""
    queries = _queries(case).astype(np.float64)
    unit_of_weights = 2.0**-21 if _floats(case) else 2.0**-8
    rows = []
    for v, query in enumerate(queries):
        seen = slice(case.first[v], case.positions[v] + 1)
        weights, total = _softmax(_scores(case, query, sequence.keys[seen].astype(np.float64)), case, v)
        values = np.abs(sequence.values[seen].astype(np.float64))
        size = np.abs(query) @ np.abs(sequence.keys[seen].astype(np.float64)).T * abs(case.scale)
        slack = unit_of_weights + size.max() * 2.0**-24 * (len(query) + 4)
        rows.append(weights @ values / total * slack)
    return np.stack(rows)


def _floats(case: Attention) -> bool:
    return KINDS[case.format] in ("f32", "f16")


def _queries(case: Attention) -> F32:
    """As the kernels take them."""
    return case.queries if _floats(case) else through_bf16(case.queries)


def _attend(case: Attention, sequence: Sequence, kind: type) -> np.ndarray:
    queries = _queries(case).astype(kind)
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
