"""Paged attention against a definition written with loops over positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from graph.op_calls import Array, OneLayer, evaluate, random_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import GraphError
from octavo.graph import OPS, KVLayerSpec, TensorType, WeightSpec
from octavo.graph.ops import Case


@dataclass
class Step:
    """A step over rows of (tokens already cached, new tokens), and everything that a definition needs."""

    case: Case
    cache: OneLayer
    rows: list[tuple[int, int]]
    history: list[tuple[Array, Array]]
    """Per row its keys and values at all positions, [n, kv_heads, head_dim]."""


def make_step(seed: int, rows: list[tuple[int, int]], attrs: dict[str, Any], block_size: int, padding: int = 0) -> Step:
    """Rows over shuffled blocks; ``padding`` tokens at the end that belong to no row."""
    rng = np.random.default_rng(seed)
    heads, kv_heads, dim = attrs["heads"], attrs["kv_heads"], attrs["head_dim"]
    per_row = max([-(-(before + new) // block_size) for before, new in rows] + [1])
    cache = random_cache(rng, len(rows) * per_row + 1, block_size, kv_heads, dim)
    tables = 1 + rng.permutation(len(rows) * per_row).reshape(1, len(rows), per_row).astype(np.int32)
    history, news, slots = [], [], []
    for table, (before, new) in zip(tables[0], rows, strict=True):
        keys, values = rng.standard_normal((2, before + new, kv_heads, dim))
        for position in range(before):
            block, offset = table[position // block_size], position % block_size
            cache.keys[block, offset], cache.values[block, offset] = keys[position], values[position]
        slots += [table[p // block_size] * block_size + p % block_size for p in range(before, before + new)]
        history.append((keys, values))
        news.append((keys[before:], values[before:]))
    spare = rng.standard_normal((2, padding, kv_heads, dim))
    k, v = (np.concatenate([new[i] for new in news] + [spare[i]]).reshape(-1, kv_heads * dim) for i in (0, 1))
    q = rng.standard_normal((len(k), heads * dim)) * 2
    starts = np.cumsum([0] + [new for _, new in rows]).astype(np.int32)
    lens = np.array([before + new for before, new in rows], np.int32)
    weights = [rng.standard_normal(heads)] if attrs.pop("sinks", False) else []
    inputs = [q, k, v, starts, lens, np.array([slots + [-1] * padding], np.int32), tables]
    return Step(Case(inputs, weights, {"layer": 0, **attrs}), cache, rows, history)


def defined(step: Step) -> Array:
    """What every query's every head gets, one position at a time."""
    attrs, q = step.case.attrs, step.case.inputs[0]
    heads, kv_heads, dim = (int(attrs[n]) for n in ("heads", "kv_heads", "head_dim"))  # type: ignore[call-overload]
    out, token = np.zeros_like(q), 0
    for (before, new), (keys, values) in zip(step.rows, step.history, strict=True):
        for position in range(before, before + new):
            for head in range(heads):
                query = q[token, head * dim : (head + 1) * dim]
                shared = head // (heads // kv_heads)
                last = position if attrs["causal"] else before + new - 1
                window = attrs.get("window")
                first = 0 if window is None else max(0, position - window + 1)  # type: ignore[operator]
                weights = []
                for seen in range(first, last + 1):
                    score = float(query @ keys[seen, shared]) * attrs["scale"]  # type: ignore[operator]
                    if attrs.get("softcap"):
                        score = attrs["softcap"] * math.tanh(score / attrs["softcap"])  # type: ignore[operator]
                    weights.append(math.exp(score))
                total = sum(weights) + (math.exp(step.case.weights[0][head]) if step.case.weights else 0)
                mixed = sum(w / total * values[first + i, shared] for i, w in enumerate(weights))
                out[token, head * dim : (head + 1) * dim] = mixed
            token += 1
    return out


BASE = {"heads": 4, "kv_heads": 2, "head_dim": 4, "scale": 0.5, "causal": True}


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 999),
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=4),
    block_size=st.sampled_from([1, 2, 4, 16]),
    kv_heads=st.integers(1, 2),
    shared=st.integers(1, 3),
    window=st.none() | st.integers(1, 7),
    softcap=st.none() | st.sampled_from([0.5, 3.0]),
    sinks=st.booleans(),
    causal=st.booleans(),
    padding=st.integers(0, 2),
)
def test_equals_its_definition(
    seed: int, rows: list[tuple[int, int]], block_size: int, kv_heads: int, shared: int, padding: int, **attrs: Any
) -> None:
    rows = [(before if new else 0, new) for before, new in rows]  # a row with no token is padding: context 0
    attrs = {**BASE, **attrs, "kv_heads": kv_heads, "heads": kv_heads * shared}
    step = make_step(seed, rows, attrs, block_size, padding)
    before = step.cache.copy(np.float64)
    (found,) = evaluate(OPS["attention"], step.case, np.float64, step.cache)
    np.testing.assert_allclose(found, defined(step), rtol=1e-9, atol=1e-12)
    # The step's keys and values are in the cache at their slots, and nothing else changed.
    k, v, slots = step.case.inputs[1], step.case.inputs[2], step.case.inputs[5][0]
    for tensor, old, new in ((step.cache.keys, before.keys, k), (step.cache.values, before.values, v)):
        for token, slot in enumerate(slots):
            if slot >= 0:
                old[slot // block_size, slot % block_size] = new[token].reshape(kv_heads, 4)
        assert np.array_equal(tensor, old)


def test_padding_tokens_write_nothing_and_get_zeros() -> None:
    step = make_step(0, [(4, 2)], dict(BASE), block_size=4, padding=3)
    last = step.cache.keys[-1, -1].copy()  # what slot -1 would be, taken as an index
    (found,) = evaluate(OPS["attention"], step.case, np.float64, step.cache)
    assert found[:2].all()
    assert not found[2:].any()
    assert np.array_equal(step.cache.keys[-1, -1], last)


def test_a_window_never_reads_blocks_it_has_left() -> None:
    step = make_step(1, [(11, 2)], {**BASE, "window": 3}, block_size=4)
    expected = defined(step)
    step.case.inputs[6][0, 0, :2] = 0  # positions 0 to 7 are gone; the first that a query sees is 9
    step.cache.keys[0] = step.cache.values[0] = np.nan
    np.testing.assert_allclose(evaluate(OPS["attention"], step.case, np.float64, step.cache)[0], expected, rtol=1e-9)


def test_the_layers_group_selects_slots_and_table() -> None:
    step = make_step(2, [(5, 3), (0, 4)], dict(BASE), block_size=2)
    expected = defined(step)
    slots, tables = step.case.inputs[5:]
    wrong_slots, wrong_tables = np.full_like(slots, -1), np.zeros_like(tables)
    step.case.inputs[5:] = [np.concatenate([wrong_slots, slots]), np.concatenate([wrong_tables, tables])]
    step.cache.spec = KVLayerSpec(2, 4, None, group=1, slot=0)
    np.testing.assert_allclose(evaluate(OPS["attention"], step.case, np.float64, step.cache)[0], expected, rtol=1e-9)


def test_large_scores_do_not_overflow() -> None:
    step = make_step(3, [(4, 3)], {**BASE, "scale": 4000.0, "sinks": True}, block_size=4)
    (found,) = evaluate(OPS["attention"], step.case, np.float32, step.cache.copy(np.float32))
    assert np.isfinite(found).all()
    (token,) = np.flatnonzero(np.abs(found).max(-1) == np.abs(found).max(-1).max())[:1]
    assert np.abs(found[token]).max() <= max(np.abs(v).max() for _, v in step.history) + 1e-5


@pytest.mark.parametrize("sink", [-1000.0, 1000.0])
def test_a_sink_may_take_nothing_or_all(sink: float) -> None:
    step = make_step(4, [(4, 3)], {**BASE, "sinks": True}, block_size=4)
    step.case.weights[0][:] = sink
    (found,) = evaluate(OPS["attention"], step.case, np.float32, step.cache.copy(np.float32))
    step.case.weights.clear()
    np.testing.assert_allclose(found, defined(step) if sink < 0 else 0, rtol=1e-4, atol=1e-6)


Q, K, IDS = TensorType(("T", 16), "f32"), TensorType(("T", 8), "f32"), TensorType(("T",), "i32")


@pytest.mark.parametrize(
    ("inputs", "attrs", "sinks", "message"),
    [
        ([Q, K, K], {"heads": 3}, None, "3 heads cannot share 2 KV heads evenly"),
        ([Q, K, K], {"kv_heads": 0}, None, "4 heads cannot share 0 KV heads"),
        ([K, K, K], {}, None, r"q is f32\[T, 8\], not 4 heads of 4"),
        ([Q, Q, K], {}, None, r"k is f32\[T, 16\], not 2 heads of 4"),
        ([Q, K, Q], {}, None, r"v is f32\[T, 16\], not 2 heads of 4"),
        ([Q, K, K], {"window": 0}, None, "window must be positive, not 0"),
        ([Q, K, K], {"window": 2.5}, None, "window must be positive, not 2.5"),
        ([Q, K, K], {}, (2,), "one logit per head"),
        ([Q, K, K], {"scale": None}, None, "scale must be a number"),
    ],
)
def test_refuses(inputs: list[TensorType], attrs: dict[str, Any], sinks: tuple[int] | None, message: str) -> None:
    weights = [WeightSpec(sinks, ("heads",), "f32")] if sinks else []
    with pytest.raises(GraphError, match=message):
        OPS["attention"].infer([*inputs, IDS, IDS, IDS, IDS], weights, {**BASE, "layer": 0, **attrs})
