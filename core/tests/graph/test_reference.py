"""The interpreter with a paged cache: however a sequence is cut and its blocks lie, the logits are the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from graph.decoders import VOCAB, Shape, decoder, random_weights, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import GraphError
from octavo.graph import Builder, Graph, Interpreter, KVArrays, fuse
from octavo.graph.reference import run_sequence


@dataclass
class Paged:
    """Sequences that share one interpreter and one pool, their blocks taken at random."""

    graph: Graph
    block_size: int
    rng: np.random.Generator
    dtype: type = np.float64
    tables: dict[str, list[list[int]]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups = len(self.graph.kv_windows)
        self.free = (1 + self.rng.permutation(400)).tolist()
        self.kv = KVArrays(self.graph, 401, self.block_size, self.dtype)
        for tensor in (*self.kv.keys, *self.kv.values):
            tensor[:] = 1e3  # what nobody wrote must not be read
        self.interpreter = Interpreter(self.graph, random_weights(self.graph), self.dtype)

    def step(self, rows: list[tuple[str, list[int]]], padding: int = 0) -> dict[str, np.ndarray]:
        """New tokens of some sequences, all of whose logits come back; ``padding`` empty rows and spare tokens."""
        parts: dict[str, list] = {n: [] for n in ("tokens", "positions", "context_lens", "starts")}
        parts["starts"].append(0)
        slots: list[list[int]] = [[] for _ in range(self.groups)]
        for name, tokens in rows:
            before = self.cached.get(name, 0)
            tables = self.tables.setdefault(name, [[] for _ in range(self.groups)])
            for group, table in enumerate(tables):
                while len(table) * self.block_size < before + len(tokens):
                    table.append(self.free.pop())
                slots[group] += [
                    table[p // self.block_size] * self.block_size + p % self.block_size
                    for p in range(before, before + len(tokens))
                ]
            parts["tokens"] += tokens
            parts["positions"] += range(before, before + len(tokens))
            parts["context_lens"].append(before + len(tokens))
            parts["starts"].append(len(parts["tokens"]))
            self.cached[name] = before + len(tokens)
        width = max((len(t) for name, _ in rows for t in self.tables[name]), default=1)
        tables = np.zeros((self.groups, len(rows) + padding, width), np.int32)
        for r, (name, _) in enumerate(rows):
            for group, table in enumerate(self.tables[name]):
                tables[group, r, : len(table)] = table
        count = len(parts["tokens"])
        inputs = {
            "tokens": np.array(parts["tokens"] + [0] * padding, np.int32),
            "positions": np.array(parts["positions"] + [0] * padding, np.int32),
            "query_starts": np.array(parts["starts"] + [count] * padding, np.int32),
            "context_lens": np.array(parts["context_lens"] + [0] * padding, np.int32),
            "slots": np.array([s + [-1] * padding for s in slots], np.int32).reshape(self.groups, -1),
            "block_tables": tables,
            "sample_rows": np.arange(count, dtype=np.int32),
        }
        logits = self.interpreter.run(inputs, self.kv)["logits"]
        return {name: logits[parts["starts"][r] : parts["starts"][r + 1]] for r, (name, _) in enumerate(rows)}


@st.composite
def schedules(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[list[tuple[str, int]]]]:
    """Sequences, and steps of (sequence, how many of its tokens) that run all of them to the end."""
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    left = {f"s{i}": n for i, n in enumerate(lengths)}
    sequences = {name: draw(st.lists(st.integers(0, VOCAB - 1), min_size=n, max_size=n)) for name, n in left.items()}
    steps = []
    while any(left.values()):
        step = []
        for name in draw(st.permutations(sorted(n for n, count in left.items() if count))):
            count = draw(st.integers(0 if step else 1, left[name]))
            if count:
                step.append((name, count))
                left[name] -= count
        steps.append(step)
    return sequences, steps


@settings(max_examples=40, deadline=None)
@given(shapes, schedules(), st.sampled_from([1, 4, 16]), st.integers(0, 2), st.integers(0, 99), st.booleans())
def test_chunks_over_scattered_blocks_equal_one_shot(
    shape: Shape,
    schedule: tuple[dict[str, list[int]], list[list[tuple[str, int]]]],
    block_size: int,
    padding: int,
    seed: int,
    fused: bool,
) -> None:
    sequences, steps = schedule
    graph = fuse(decoder(shape)) if fused else decoder(shape)
    paged = Paged(graph, block_size, np.random.default_rng(seed))
    found: dict[str, list[np.ndarray]] = {name: [] for name in sequences}
    for step in steps:
        rows = [(name, sequences[name][paged.cached.get(name, 0) :][:count]) for name, count in step]
        for name, logits in paged.step(rows, padding).items():
            found[name].append(logits)
    for name, tokens in sequences.items():
        expected = run_sequence(graph, random_weights(graph), tokens, np.float64)
        np.testing.assert_allclose(np.concatenate(found[name]), expected, rtol=1e-8, atol=1e-8)


def test_float32_run_is_close_to_float64() -> None:
    graph = decoder(Shape(windows=(None, 3), qk_norm=True, bias=True))
    tokens = [5, 3, 8, 1, 13, 21, 2]
    single, double = (run_sequence(graph, random_weights(graph), tokens, t) for t in (np.float32, np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, atol=1e-3 * np.abs(double).max())


def test_a_later_token_changes_no_earlier_logits_and_an_earlier_one_does() -> None:
    graph = decoder()
    weights = random_weights(graph)
    base = run_sequence(graph, weights, [1, 2, 3, 4, 5], np.float64)
    later = run_sequence(graph, weights, [1, 2, 3, 4, 9], np.float64)
    np.testing.assert_array_equal(base[:4], later[:4])
    earlier = run_sequence(graph, weights, [9, 2, 3, 4, 5], np.float64)
    assert (np.abs(base - earlier).max(axis=-1) > 1e-6).all()


def test_a_window_forgets() -> None:
    graph = decoder(Shape(windows=(2,)))
    weights = random_weights(graph)
    near, far = (run_sequence(graph, weights, [first, 2, 3, 4], np.float64) for first in (1, 9))
    np.testing.assert_allclose(near[2:], far[2:], rtol=1e-9)
    assert not np.allclose(near[:2], far[:2])


def test_copied_blocks_continue_a_sequence() -> None:
    """A fork: the copy of a block serves as the block did, in every layer slot, and the two then part."""
    graph = decoder(Shape(windows=(None, None, 3, 3)))
    paged = Paged(graph, 4, np.random.default_rng(0))
    paged.step([("a", [1, 2, 3, 4, 5, 6])])
    copies = []
    paged.cached["b"], paged.tables["b"] = 6, []
    for table in paged.tables["a"]:
        new = [paged.free.pop() for _ in table]
        copies += list(zip(table, new, strict=True))
        paged.tables["b"].append(new)
    paged.kv.copy_blocks(copies)
    found = paged.step([("a", [7, 8]), ("b", [9, 10])])
    weights = random_weights(graph)
    for name, end in (("a", [7, 8]), ("b", [9, 10])):
        expected = run_sequence(graph, weights, [1, 2, 3, 4, 5, 6, *end], np.float64)[6:]
        np.testing.assert_allclose(found[name], expected, rtol=1e-9)


def test_copies_take_effect_in_order() -> None:
    graph = decoder()
    kv = KVArrays(graph, 4, 2)
    for block in range(4):
        for tensor in (*kv.keys, *kv.values):
            tensor[block] = block
    kv.copy_blocks([(1, 2), (2, 3)])
    assert [float(kv.keys[0][b, 0, 0, 0]) for b in range(4)] == [0, 1, 1, 1]
    assert [float(kv.values[-1][b, 1, 1, 0]) for b in range(4)] == [0, 1, 1, 1]


def test_tensors_that_somebody_else_holds_are_written_in_place_whatever_their_layout() -> None:
    graph = decoder(Shape(windows=(None,)))
    own = [np.zeros((2, 9, 3, 4)).transpose(1, 2, 0, 3) for _ in range(2)]  # [blocks, block_size, kv_heads, head_dim]
    paged = Paged(graph, 3, np.random.default_rng(0))
    paged.free = [8, 2, 5]
    paged.kv = KVArrays.over(graph, own[:1], own[1:], 3)
    found = paged.step([("a", [1, 2])])["a"]
    found = np.concatenate([found, paged.step([("a", [3, 4, 5])])["a"]])
    np.testing.assert_allclose(
        found, run_sequence(graph, random_weights(graph), [1, 2, 3, 4, 5], np.float64), rtol=1e-9
    )
    assert own[0][5].any()
    assert own[0][2].any()
    assert not own[0][8].any()


def test_a_model_without_attention_needs_no_cache() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    g.output("logits", g.linear(g.take_rows(h), "head", VOCAB))
    graph = g.build()
    weights = random_weights(graph)
    found = run_sequence(graph, weights, [4, 2], np.float64)
    np.testing.assert_allclose(found, weights["e.weight"][[4, 2]] @ weights["head.weight"].T)


def test_missing_weights_are_named() -> None:
    graph = decoder()
    weights = random_weights(graph)
    del weights["model.norm.weight"], weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(
        GraphError, match=r"lacks the weights model\.layers\.1\.mlp\.up_proj\.weight, model\.norm\.weight"
    ):
        Interpreter(graph, weights)
