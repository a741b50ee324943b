"""Attention under test: sequences with known queries, keys and values, through any chunks, blocks and tables.

    case = randn(t, rng, spec, lengths=(37, 5))
    (out,) = play(t, case, [Run(whole(case))])          # [all tokens, heads * head_dim], sequence after sequence
    yield judged("one shot", t, case, out)

A run is rounds of rows over tables of blocks; several runs of one case share a device's life, each in blocks of its own
or in the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge import lowp, measure, oracle64
from octavo_conformance.judge.floats import F32, F64
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng
from octavo_conformance.probe import Model, Probe
from octavo_conformance.steps import Action, ReadBlock, Row, Seq, Step, WriteBlock, blocks_for
from octavo_conformance.verdict import Verdict

if TYPE_CHECKING:
    from octavo_conformance.target import Target

Rounds = Sequence[Sequence[Row]]


@dataclass(frozen=True)
class Case:
    """Sequences side by side: token i of the whole has row i of ``q``, ``k`` and ``v``. Values are as stored."""

    spec: Attention
    lengths: tuple[int, ...]
    q: F32 = field(repr=False)
    k: F32 = field(repr=False)
    v: F32 = field(repr=False)

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each sequence, and one past the last."""
        return tuple(int(n) for n in np.concatenate([[0], np.cumsum(self.lengths)]))

    def each(self, array: npt.NDArray[np.generic]) -> list[npt.NDArray[np.generic]]:
        """An array over all tokens, cut into sequences."""
        return [array[a:b] for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]


@dataclass(frozen=True)
class Run:
    """Rounds of rows, in order, over a table for each sequence (blocks from 1 on, if left out).

    ``before`` sets blocks first: poison, say. ``read`` names blocks to read at the end.
    """

    rounds: Rounds
    tables: Sequence[tuple[int, ...]] | None = None
    before: Sequence[WriteBlock] = ()
    read: Sequence[int] = ()


@dataclass(frozen=True)
class Ran:
    """What a run brought: the output of every token that some round computed (NaN for the others), and the blocks."""

    out: F32
    blocks: Mapping[int, F32]


def randn(t: Target, rng: Rng, spec: Attention, lengths: Sequence[int], *, kv_dtype: str | None = None) -> Case:
    """Normal numbers, with the odd outlier among the values."""
    total = sum(lengths)
    q = t.stored(rng.normal(total, spec.heads * spec.head_dim))
    k = t.kv_stored(t.stored(rng.normal(total, spec.kv_heads * spec.head_dim)), kv_dtype)
    v = t.kv_stored(t.stored(rng.outliers(total, spec.kv_heads * spec.head_dim)), kv_dtype)
    return Case(spec, tuple(lengths), q, k, v)


def count(t: Target, spec: Attention, lengths: Sequence[int]) -> Case:
    """The count probe: queries of 0 weigh all that they see alike, and the value of position p in KV head g is 1 in
    column (p + g) mod head_dim. The output times the number of tokens seen is then a table of counts.
    """
    total = sum(lengths)
    at = np.concatenate([np.arange(n) for n in lengths])
    v = np.zeros((total, spec.kv_heads, spec.head_dim), np.float32)
    for g in range(spec.kv_heads):
        v[np.arange(total), g, (at + g) % spec.head_dim] = 1
    zeros = np.zeros((total, spec.heads * spec.head_dim), np.float32)
    k = t.kv_stored(np.ones((total, spec.kv_heads * spec.head_dim), np.float32))
    return Case(spec, tuple(lengths), zeros, k, v.reshape(total, -1))


def model(t: Target, case: Case) -> Model:
    """Attention alone, its result as logits."""
    spec = case.spec
    p = Probe(t, "attention")
    q, k, v = p.rows("q", case.q), p.rows("k", case.k), p.rows("v", case.v)
    if spec.sinks is not None:
        p.weight("sinks", np.array(spec.sinks, np.float32))
    made = p.build.attention(
        q, k, v, layer=0, heads=spec.heads, kv_heads=spec.kv_heads, head_dim=spec.head_dim, scale=spec.scale,
        window=spec.window, softcap=spec.softcap, sinks="sinks" if spec.sinks is not None else None, causal=spec.causal,
    )  # fmt: skip
    return p.read(made)


def whole(case: Case) -> Rounds:
    """Every sequence in one chunk, all in one round."""
    return [[Row(i, 0, length) for i, length in enumerate(case.lengths)]]


def chunks(case: Case, size: int) -> Rounds:
    """Every sequence in chunks of ``size``."""
    longest = max(case.lengths)
    return [
        [Row(i, at, min(size, length - at)) for i, length in enumerate(case.lengths) if at < length]
        for at in range(0, longest, size)
    ]


def decodes(case: Case, last: int) -> Rounds:
    """All but the ``last`` tokens of every sequence in one chunk, then these one by one."""
    first = [[Row(i, 0, length - last) for i, length in enumerate(case.lengths) if length > last]]
    rest = [
        [Row(i, length - n, 1) for i, length in enumerate(case.lengths) if length - n >= 0] for n in range(last, 0, -1)
    ]
    return [r for r in (*first, *rest) if r]


def play(
    t: Target, case: Case, runs: Sequence[Run], *, block_size: int | None = None, kv_dtype: str | None = None,
    blocks: int | None = None,
) -> list[Ran]:  # fmt: skip
    """All runs, one after another, in one device's life."""
    size = block_size or t.block_size
    script: list[Action] = []
    for run in runs:
        tables = run.tables or blocks_for(case.lengths, size)
        sequences = tuple(
            Seq(tuple(range(start, start + length)), (tuple(table),))
            for start, length, table in zip(case.starts, case.lengths, tables, strict=False)
        )
        script += run.before
        script += [Step(sequences, tuple(rows)) for rows in run.rounds]
        script += [ReadBlock(block) for block in run.read]
    results = iter(t.play(model(t, case), script, block_size=size, kv_dtype=kv_dtype, blocks=blocks).results)
    return [_collected(case, run, results) for run in runs]


def _collected(case: Case, run: Run, results: object) -> Ran:
    out = np.full((sum(case.lengths), case.spec.heads * case.spec.head_dim), np.nan, np.float32)
    stream = iter(results)  # type: ignore[call-overload]
    for _ in run.before:
        next(stream)
    for rows in run.rounds:
        logits, at = next(stream), 0
        for row in rows:
            start = case.starts[row.sequence] + row.start
            out[start : start + row.count] = logits[at : at + row.count]
            at += row.count
    return Ran(out, {block: next(stream) for block in run.read})


def poison(case: Case, t: Target, block: int, *, keys: bool = True, values: bool = True, block_size: int | None = None,
           value: float = float("nan")) -> WriteBlock:  # fmt: skip
    """A block full of NaN (or ``value``) in its keys, its values, or both; the rest zeros."""
    spec = case.spec
    data = np.zeros((2, 1, block_size or t.block_size, spec.kv_heads, spec.head_dim), np.float32)
    data[0] = value if keys else 0
    data[1] = value if values else 0
    return WriteBlock(block, data)


# -- judging ------------------------------------------------------------------------------------------


def exact(case: Case, seen: Sequence[npt.NDArray[np.bool_]] | None = None) -> F64:
    """The truth for every token. ``seen`` replaces each sequence's mask, for wrong answers."""
    masks: Sequence[npt.NDArray[np.bool_] | None] = seen or [None] * len(case.lengths)
    parts = zip(case.each(case.q), case.each(case.k), case.each(case.v), masks, strict=True)
    return np.concatenate([oracle64.attention(q, k, v, case.spec, seen=mask) for q, k, v, mask in parts])


def reference(case: Case, dtype: str, kv_dtype: str) -> F32:
    """The yardstick for every token."""
    parts = zip(case.each(case.q), case.each(case.k), case.each(case.v), strict=True)
    return np.concatenate([lowp.attention(q, k, v, case.spec, dtype=dtype, kv_dtype=kv_dtype) for q, k, v in parts])


def bound(case: Case, dtype: str, kv_dtype: str) -> F64:
    """What each element may be off at most."""
    parts = zip(case.each(case.q), case.each(case.k), case.each(case.v), strict=True)
    return np.concatenate([oracle64.attention_bound(q, k, v, case.spec, kv_dtype, dtype) for q, k, v in parts])


def judged(
    name: str, t: Target, case: Case, out: F32, *, kv_dtype: str | None = None, rows: npt.ArrayLike | None = None,
    note: str = "",
) -> Verdict:  # fmt: skip
    """Rule R for all tokens, or those of ``rows``, against wrong masks as well as the general wrong answers."""
    kv = kv_dtype or t.kv_dtype
    at = np.arange(sum(case.lengths)) if rows is None else np.asarray(rows)
    wrong = {plant: exact(case, masks)[at] for plant, masks in wrong_masks(case).items()}
    return measure.budget(
        name, out[at], exact(case)[at], reference(case, t.dtype, kv)[at], t.dtype,
        bound=bound(case, t.dtype, kv)[at], plants=wrong, note=note,
    )  # fmt: skip


def counted(name: str, case: Case, out: F32, *, rows: npt.ArrayLike | None = None, note: str = "") -> Verdict:
    """Rule X0 for a `count` case: the integers of the output, against wrong masks."""
    at = np.arange(sum(case.lengths)) if rows is None else np.asarray(rows)
    masks = [oracle64.visible(case.spec, np.arange(n), n) for n in case.lengths]
    seen = np.concatenate([mask.sum(1) for mask in masks])[:, None]
    expected = np.rint(exact(case) * seen)[at]
    wrong = {
        plant: np.rint(exact(case, other) * np.concatenate([m.sum(1) for m in other])[:, None])[at]
        for plant, other in wrong_masks(case).items()
    }
    return measure.integers(name, (out.astype(np.float64) * seen)[at], expected, plants=wrong, note=note)


def wrong_masks(case: Case) -> dict[str, list[npt.NDArray[np.bool_]]]:
    """Masks that are off by one: the next token seen too, the oldest one missing, the window one wider."""
    right = [oracle64.visible(case.spec, np.arange(n), n) for n in case.lengths]
    changed = {"next token seen": [], "oldest token missed": [], "window one wider": []}  # type: dict[str, list[npt.NDArray[np.bool_]]]
    for mask in right:
        after, older, wider = mask.copy(), mask.copy(), mask.copy()
        for row, seen in enumerate(mask):
            first, last = np.flatnonzero(seen)[[0, -1]]
            after[row, min(last + 1, len(mask) - 1)] = True
            older[row, first] = first == last
            wider[row, max(first - 1, 0)] = True
        changed["next token seen"].append(after)
        changed["oldest token missed"].append(older)
        changed["window one wider"].append(wider)
    return {
        name: masks
        for name, masks in changed.items()
        if any(not np.array_equal(a, b) for a, b in zip(masks, right, strict=True))
    }
