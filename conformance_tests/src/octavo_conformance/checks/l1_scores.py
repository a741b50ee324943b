"""L1 · ATT: scores, softmax, the types of the cache, and long contexts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from octavo_conformance.checks.l1_attention import ATTENTION, grouped, last_rows
from octavo_conformance.harness import attention
from octavo_conformance.harness.attention import Case, Ran, Run
from octavo_conformance.harness.steps import Row, blocks_for
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.judge.floats import F64
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


def decoded(t: Target, case: Case, count: int = 1) -> Ran:
    """The last ``count`` tokens of each sequence, over a cache that was filled."""
    tables = blocks_for(case.lengths, t.block_size)
    before = attention.filled(case, tables, [max(n - count, 0) for n in case.lengths], t.block_size)
    rounds = [[Row(i, n - back, 1) for i, n in enumerate(case.lengths) if n >= back] for back in range(count, 0, -1)]
    (ran,) = attention.play(t, case, [Run(rounds, tables, before)])
    return ran


def other_spec(case: Case, rows: np.ndarray, **changes: object) -> F64:
    """What another layer would make of the same inputs."""
    return attention.exact(replace(case, spec=replace(case.spec, **changes)), None, rows)  # type: ignore[arg-type]


@check(
    "att.scale", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("R",),
    kills=("M06.more", "M06.inverse"), cost=1.0,
    spec="""Scores MUST be multiplied by the layer's own scale, whatever its head size.""",
)  # fmt: skip
def scale(t: Target) -> Iterator[Verdict]:
    for factor in (0.125, 1.0, 0.03, 0.0725):
        case = attention.randn(t, t.rng("randn", str(factor)), grouped(t, scale=factor), (70, 3 * t.block_size + 1))
        rows = last_rows(case, 8)
        wrong = {"2 % more": other_spec(case, rows, scale=factor * 1.02)} if factor >= 0.1 else {}
        out = decoded(t, case, 8).out
        name = f"scale={factor:g}"
        yield attention.judged(name, t, case, out, rows=rows, plants=wrong, masks=factor < 0.1)


@check(
    "att.logit_extremes", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("R",),
    kills=("M15",), cost=1.5,
    spec="""Softmax MUST be right and finite for scores far from zero, of either sign: large ones, equal ones, one above
    all others, and rows whose every score is far below zero.""",
)  # fmt: skip
def logit_extremes(t: Target) -> Iterator[Verdict]:
    lengths = (90, 2 * t.block_size + 30)
    for name, size, shift in (("±80", 8.0, 0.0), ("±300", 30.0, 0.0), ("all near 400", 3.0, 400.0),
                              ("all near -400", 3.0, -400.0), ("all equal", 0.0, 250.0)):  # fmt: skip
        yield _extreme(t, name, size, shift, lengths)


def _extreme(t: Target, name: str, size: float, shift: float, lengths: tuple[int, ...]) -> Verdict:
    """Scores of about ``shift`` with a spread of ``size``, from queries and keys that every float type holds exactly,
    so that what is tested is the softmax.
    """
    rng, spec = t.rng(name), grouped(t, scale=0.1)
    total, dim = sum(lengths), spec.head_dim
    q = np.zeros((total, spec.heads, dim))
    k = np.zeros((total, spec.kv_heads, dim))
    q[..., 0], k[..., 0] = shift * 10 / 8, 8.0
    q[..., 1:4] = rng.choice_signs(total, spec.heads, 3) * max(8.0, np.rint(size * 4))
    k[..., 1:4] = rng.integers(-16, 17, total, spec.kv_heads, 3) / 2 * (size > 0)
    v = rng.normal(total, spec.kv_heads, dim)
    case = Case(spec, lengths, *(t.kv_stored(t.stored(x.reshape(total, -1))) for x in (q, k, v)))
    rows = last_rows(case, 16)
    exact = attention.exact(case, None, rows)
    own = attention.reference(case, t.dtype, t.kv_dtype, rows) + (_shaken(t, case, rows) - exact)
    return measure.budget(name, decoded(t, case, 16).out[rows], exact, own, t.dtype)


def _shaken(t: Target, case: Case, rows: np.ndarray) -> F64:
    """The truth if each score were one unit in the last place of the largest away. A kernel rounds a score two or three
    times; where few tokens have all the weight, whether a yardstick that rounds once is off as well is mere luck.
    """
    spec = case.spec
    q, k = (x.reshape(len(x), -1, spec.head_dim).copy() for x in (case.q, case.k))
    largest = spec.scale * np.einsum("nd,nd->n", np.abs(q).max(1), np.abs(k).max(1)).max()
    q[..., 4] = 1
    k[..., 4] = t.rng("units").choice_signs(*k.shape[:2]) * largest * 2.0**-23 / spec.scale
    other = replace(case, q=q.reshape(case.q.shape), k=k.reshape(case.k.shape))
    return attention.exact(other, None, rows)


@check(
    "att.softcap", level="L1", module="ATT", since="1.0", requires=("op:attention", "attention:softcap"),
    rules=("R",), kills=("M17.softcap",), cost=1.0,
    spec="""With a softcap, scores MUST be scaled, then become cap * tanh(score / cap), before the mask; at saturation
    too.""",
)  # fmt: skip
def softcap(t: Target) -> Iterator[Verdict]:
    for cap, size in ((50.0, 1.0), (5.0, 1.0), (20.0, 12.0)):
        name = f"cap={cap:g}, size={size:g}"
        case = attention.randn(t, t.rng(name), grouped(t, softcap=cap, window=None), (75, t.block_size + 2))
        case = replace(case, q=t.kv_stored(case.q * size))
        rows = last_rows(case, 8)
        wrong = {"no cap": other_spec(case, rows, softcap=None)} if cap < 50 else {}
        yield attention.judged(name, t, case, decoded(t, case, 8).out, rows=rows, plants=wrong)
    yield from _capped_mask(t)


def _capped_mask(t: Target) -> Iterator[Verdict]:
    """A cap after the mask would let masked positions in, with a weight of e^-cap: a small cap shows them."""
    probe = attention.count(t, grouped(t, softcap=1.0), (40,))
    (ran,) = attention.play(t, probe, [Run(attention.whole(probe))])
    yield attention.judged("masked positions", t, probe, ran.out)


@check(
    "att.sinks", level="L1", module="ATT", since="1.0", requires=("op:attention", "attention:sinks"), rules=("R",),
    kills=("M17.sinks",), cost=1.0,
    spec="""A head's sink MUST take part in the softmax like the score of one more key, and have no value.""",
)  # fmt: skip
def sinks(t: Target) -> Iterator[Verdict]:
    for window in (None, 20) if t.declares("attention:window") else (None,):
        spec = grouped(t, sinks=(-2.0, 0.5, 2.0, 4.0), window=window)
        case = attention.randn(t, t.rng("randn"), spec, (75, 1, t.block_size + 2))
        (ran,) = attention.play(t, case, [Run(attention.chunks(case, 33))])
        rows = np.arange(sum(case.lengths))
        wrong = {"no sinks": other_spec(case, rows, sinks=None),
                 "heads exchanged": other_spec(case, rows, sinks=(4.0, 2.0, 0.5, -2.0))}  # fmt: skip
        yield attention.judged(f"window={window}", t, case, ran.out, plants=wrong)


@check(
    "att.long_context", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R"), kills=("M14",), cost=3.0,
    spec="""Attention over thousands of tokens MUST read each of them, once; where a kernel splits a context, the parts
    MUST be joined by their softmax totals.""",
)  # fmt: skip
def long_context(t: Target) -> Iterator[Verdict]:
    longest = _longest(t, 3100)
    lengths = tuple(n for n in (1024, 1025, 3100) if n <= longest) or (longest,)
    probe = attention.count(t, grouped(t), lengths)
    yield attention.counted("count", probe, decoded(t, probe).out, rows=last_rows(probe))
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    # Keys grow along the sequence, so that the parts of a split weigh differently.
    growth = np.concatenate([np.linspace(0.1, 1.5, n) for n in lengths])[:, None]
    case = replace(case, k=t.kv_stored(t.stored(case.k * growth)))
    yield attention.judged("randn", t, case, decoded(t, case).out, rows=last_rows(case))
    # A chunk that lies across such an end.
    end = min(1040, longest)
    chunk = replace(case, lengths=(end,), q=case.q[:end], k=case.k[:end], v=case.v[:end])
    tables = blocks_for((end,), t.block_size)
    before = attention.filled(chunk, tables, [end - 40], t.block_size)
    (ran,) = attention.play(t, chunk, [Run([[Row(0, end - 40, 40)]], tables, before)])
    yield attention.judged("randn, a chunk at the end", t, chunk, ran.out, rows=np.arange(end - 40, end))


def _longest(t: Target, wanted: int) -> int:
    """The longest context up to ``wanted`` that the platform's plan holds in one row."""
    plan = t.plan(attention.model(t, attention.count(t, grouped(t), (1,))), context=wanted)
    volume = plan.limits.max_volume or wanted
    return min(
        wanted, plan.max_model_len, plan.limits.max_context or wanted, volume // plan.block_size * plan.block_size
    )


@check(
    "att.kv_scales", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("R",),
    kills=("M26",), cost=1.5,
    spec="""In every declared type of the KV cache keys and values MUST keep their own sizes, however far these lie
    apart.""",
)  # fmt: skip
def kv_scales(t: Target) -> Iterator[Verdict]:
    for kind in t.capabilities.kv_dtypes:
        for keys, values in ((1.0, 1.0), (0.25, 64.0), (4.0, 2.0**-6)):
            rng = t.rng(kind, str(keys))
            spec = grouped(t, scale=0.5 / keys / 8)
            sizes = ((spec.heads, 1.0), (spec.kv_heads, keys), (spec.kv_heads, values))
            q, k, v = (rng.normal(60, n * spec.head_dim) * size for n, size in sizes)
            yield _cached_as(t, kind, f"{kind}, keys {keys:g}, values {values:g}", spec, (q, k, v))


def _cached_as(t: Target, kind: str, name: str, spec: Attention, inputs: tuple[F64, F64, F64]) -> Verdict:
    """A prompt and some decodes with a cache of ``kind``. The truth is that of the keys and values that the cache says
    it holds: what codes lose is `att.kv_dtype_int8`'s to judge.
    """
    total = len(inputs[0])
    asked = Case(spec, (total,), *(t.stored(x) for x in inputs))
    held, (ran,) = through_cache(t, asked, kind)
    rows = np.arange(total)
    return attention.judged(name, t, held, ran.out, kv_dtype=yardstick_type(kind), rows=rows)


def yardstick_type(kind: str) -> str:
    """The float type that attention over a cache of ``kind`` may use inside: codes are multiplied out as bf16."""
    return "bf16" if kind == "int8" else kind


def through_cache(t: Target, case: Case, kind: str) -> tuple[Case, list[Ran]]:
    """One sequence run with a cache of ``kind``, and the same with the keys and values that its blocks hold at the
    end.
    """
    size, (length,) = t.block_size, case.lengths
    blocks = blocks_for(case.lengths, size)[0]
    runs = attention.play(t, case, [Run(attention.decodes(case, 5), [blocks], read=blocks)], kv_dtype=kind)
    held = np.stack([runs[0].blocks[block] for block in blocks])[:, :, 0]  # [blocks, 2, size, heads, dim]
    keys, values = held.transpose(1, 0, 2, 3, 4).reshape(2, len(blocks) * size, -1)[:, :length]
    return replace(case, k=keys, v=values), runs


@check(
    "att.kv_dtype_int8", level="L1", module="ATT", since="1.0", requires=("op:attention", "kv:int8"),
    rules=("R", "C"), cost=1.0,
    spec="""A KV cache of int8 MUST hold every element to within 1/127 of the largest of its head's vector, and
    attention MUST be that of what it holds, as exact as with a cache of bf16.""",
)  # fmt: skip
def kv_dtype_int8(t: Target) -> Iterator[Verdict]:
    case = attention.randn(t, t.rng("randn"), grouped(t), (3 * t.block_size + 7,))
    held, (ran,) = through_cache(t, case, "int8")
    for name, asked, kept in (("keys", case.k, held.k), ("values", case.v, held.v)):
        heads = asked.reshape(len(asked), -1, case.spec.head_dim).astype(np.float64)
        error = np.abs(heads - kept.reshape(heads.shape)) / np.abs(heads).max(-1, keepdims=True)
        yield measure.within(f"{name}, error over the largest", float(error.max()), 0.0, 1 / 127)
    yield attention.judged("shared codes", t, held, ran.out, kv_dtype="bf16")
