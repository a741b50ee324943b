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

from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Action, ReadBlock, Row, Seq, Step, WriteBlock, blocks_for
from octavo_conformance.judge import lowp, measure, oracle64
from octavo_conformance.judge.floats import F32, F64
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.verdict import Verdict

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

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

    ``before`` sets blocks first: poison, say. ``read`` names blocks to read at the end. ``tail`` is the block that
    table entries beyond a row's context name.
    """

    rounds: Rounds
    tables: Sequence[tuple[int, ...]] | None = None
    before: Sequence[WriteBlock] = ()
    read: Sequence[int] = ()
    tail: int = 0


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
    blocks: int | None = None, made: Model | None = None,
) -> list[Ran]:  # fmt: skip
    """All runs, one after another, in one device's life. ``made`` is a model to run in place of the plain one."""
    size = block_size or t.block_size
    script: list[Action] = []
    for run in runs:
        tables = run.tables or blocks_for(case.lengths, size)
        sequences = tuple(
            Seq(tuple(range(start, start + length)), (tuple(table),))
            for start, length, table in zip(case.starts, case.lengths, tables, strict=False)
        )
        script += run.before
        script += [Step(sequences, tuple(rows), tail=run.tail) for rows in run.rounds]
        script += [ReadBlock(block) for block in run.read]
    results = iter(t.play(made or model(t, case), script, block_size=size, kv_dtype=kv_dtype, blocks=blocks).results)
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


def filled(
    case: Case, tables: Sequence[tuple[int, ...]], until: Sequence[int], block_size: int, *, tail: float = float("nan")
) -> list[WriteBlock]:
    """The cache as it is when the first ``until[i]`` tokens of sequence i have run: blocks to set, whose slots beyond
    hold ``tail``. No step has to run for it, so that long contexts cost nothing.
    """
    spec, blocks = case.spec, []
    for start, table, stop in zip(case.starts, tables, until, strict=False):
        for index in range(-(-stop // block_size)):
            at = start + index * block_size
            count = min(block_size, start + stop - at)
            data = np.full((2, 1, block_size, spec.kv_heads, spec.head_dim), tail, np.float32)
            for part, values in enumerate((case.k, case.v)):
                data[part, 0, :count] = values[at : at + count].reshape(count, spec.kv_heads, spec.head_dim)
            blocks.append(WriteBlock(table[index], data))
    return blocks


# -- judging ------------------------------------------------------------------------------------------


def queries(case: Case, rows: npt.ArrayLike | None = None) -> list[npt.NDArray[np.intp]]:
    """Positions in each sequence of the tokens ``rows`` of the whole, ascending; of all, if left out."""
    wanted = np.arange(sum(case.lengths)) if rows is None else np.asarray(rows)
    edges = zip(case.starts[:-1], case.starts[1:], strict=True)
    return [wanted[(wanted >= a) & (wanted < b)].astype(np.intp) - a for a, b in edges]


def exact(case: Case, masks: Sequence[npt.NDArray[np.bool_]] | None = None, rows: npt.ArrayLike | None = None) -> F64:
    """The truth for the tokens ``rows``. ``masks`` [queries, length] replace each sequence's own, for wrong answers."""
    seen: Sequence[npt.NDArray[np.bool_] | None] = masks or [None] * len(case.lengths)
    parts = zip(*map(case.each, (case.q, case.k, case.v)), queries(case, rows), seen, strict=True)
    return np.concatenate([oracle64.attention(q, k, v, case.spec, at, mask) for q, k, v, at, mask in parts if len(at)])


def reference(case: Case, dtype: str, kv_dtype: str, rows: npt.ArrayLike | None = None) -> F32:
    """The yardstick for the tokens ``rows``."""
    parts = zip(*map(case.each, (case.q, case.k, case.v)), queries(case, rows), strict=True)
    return np.concatenate([
        lowp.attention(q, k, v, case.spec, at, dtype=dtype, kv_dtype=kv_dtype) for q, k, v, at in parts if len(at)
    ])  # fmt: skip


def bound(case: Case, dtype: str, kv_dtype: str, rows: npt.ArrayLike | None = None) -> F64:
    """What each element may be off at most."""
    parts = zip(*map(case.each, (case.q, case.k, case.v)), queries(case, rows), strict=True)
    return np.concatenate([
        oracle64.attention_bound(q, k, v, case.spec, kv_dtype, dtype, at) for q, k, v, at in parts if len(at)
    ])  # fmt: skip


def judged(
    name: str, t: Target, case: Case, out: F32, *, kv_dtype: str | None = None, rows: npt.ArrayLike | None = None,
    plants: Mapping[str, F64] | None = None, masks: bool = True, note: str = "",
) -> Verdict:  # fmt: skip
    """Rule R for all tokens, or those of ``rows`` (ascending), against wrong masks as well as the general wrong
    answers. Without ``masks`` the wrong masks are left out: where few tokens have all the weight, they change nothing.
    """
    kv = kv_dtype or t.kv_dtype
    at = np.arange(sum(case.lengths)) if rows is None else np.asarray(rows)
    wrong = {plant: exact(case, other, at) for plant, other in wrong_masks(case, at).items()} if masks else {}
    return measure.budget(
        name, out[at], exact(case, None, at), reference(case, t.dtype, kv, at), t.dtype,
        bound=bound(case, t.dtype, kv, at), plants={**wrong, **(plants or {})}, note=note,
    )  # fmt: skip


def counted(name: str, case: Case, out: F32, *, rows: npt.ArrayLike | None = None, note: str = "") -> Verdict:
    """Rule X0 for a `count` case: the integers of the output, against wrong masks."""
    at = np.arange(sum(case.lengths)) if rows is None else np.asarray(rows)
    seen = np.concatenate([mask.sum(1) for mask in right_masks(case, at)])[:, None]
    expected = np.rint(exact(case, None, at) * seen)
    wrong = {
        plant: np.rint(exact(case, other, at) * np.concatenate([m.sum(1) for m in other])[:, None])
        for plant, other in wrong_masks(case, at).items()
    }
    return measure.integers(name, out[at].astype(np.float64) * seen, expected, plants=wrong, note=note)


def right_masks(case: Case, rows: npt.ArrayLike | None = None) -> list[npt.NDArray[np.bool_]]:
    """What the tokens ``rows`` see, [queries, length] for each sequence."""
    asked = zip(queries(case, rows), case.lengths, strict=True)
    return [oracle64.visible(case.spec, at, n) for at, n in asked]


def wrong_masks(case: Case, rows: npt.ArrayLike | None = None) -> dict[str, list[npt.NDArray[np.bool_]]]:
    """Masks that are off by one: the next token seen too, the oldest one missing, the window one wider."""
    right = right_masks(case, rows)
    changed = {"next token seen": [], "oldest token missed": [], "window one wider": []}  # type: dict[str, list[npt.NDArray[np.bool_]]]
    for mask in right:
        after, older, wider = mask.copy(), mask.copy(), mask.copy()
        for row, seen in enumerate(mask):
            first, last = np.flatnonzero(seen)[[0, -1]]
            after[row, min(last + 1, mask.shape[1] - 1)] = True
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
