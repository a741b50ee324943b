"""Models of several attention layers whose keys and values are known, and what a block pool must hold after steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo_conformance.harness.attention import Case, Rounds
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Action, Row, Seq, Step
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng

F32 = np.ndarray[Any, np.dtype[np.float32]]


def heads_of(t: Target) -> Attention:
    """One head of the smallest declared size over 16."""
    sizes = [size for size in t.capabilities.head_dims or (16, 64) if size >= 16]
    return Attention(heads=1, kv_heads=1, head_dim=min(sizes), scale=1.0)


def ahead(t: Target, model: Model, actions: Sequence[Action], depth: int, **options: Any) -> list[Any]:
    """The results of a script whose steps are submitted up to ``depth`` ahead of their collection."""
    script = t.script(model, actions, **options)
    return script.results(t.act("ahead", depth=depth, **script.request)["results"])


def rounds_of(case: Case, rounds: Rounds, tables: Sequence[tuple[int, ...]]) -> list[Action]:
    """A step for each round of a case whose sequences live in these blocks."""
    sequences = tuple(
        Seq(tuple(range(a, a + n)), (table,)) for a, n, table in zip(case.starts, case.lengths, tables, strict=False)
    )
    return [Step(sequences, tuple(rows)) for rows in rounds]


@dataclass(frozen=True)
class Layer:
    """Keys and values of every token in one layer, [tokens, heads, head_dim], and the window of the layer."""

    k: F32
    v: F32
    window: int | None = None


@dataclass(frozen=True)
class Layers:
    """A model whose logits are the sum of what its layers attend to, all with one query."""

    t: Target
    layers: tuple[Layer, ...]
    q: F32
    kv_dtype: str

    @property
    def tokens(self) -> int:
        """How many there are."""
        return len(self.q)

    def model(self) -> Model:
        """As a graph; ``Model.graph.kv`` says which layer lives in which slot and group."""
        p = Probe(self.t, "layers")
        heads, dim = self.layers[0].k.shape[1:]
        q = p.rows("q", self.q)
        total = None
        for i, layer in enumerate(self.layers):
            k, v = (p.rows(f"{name}{i}", x.reshape(self.tokens, -1)) for name, x in (("k", layer.k), ("v", layer.v)))
            made = p.build.attention(
                q, k, v, layer=i, heads=heads, kv_heads=heads, head_dim=dim, scale=1.0, window=layer.window
            )
            total = made if total is None else p.build.add(total, made)
        assert total is not None, "a model has layers"
        return p.read(total)

    def block(self, rng: Rng, size: int, slots: int) -> F32:
        """A block of numbers that the cache's type holds."""
        shape = (2, slots, size, *self.layers[0].k.shape[1:])
        return floats.rounded(rng.normal(int(np.prod(shape))).reshape(shape), self.kv_dtype)

    def write(self, data: Sequence[F32], model: Model, sequence: Seq, positions: range, size: int) -> None:
        """Put what the model writes for these positions of a sequence where its tables say."""
        for layer, place in zip(self.layers, model.graph.kv, strict=True):
            table = sequence.tables[place.group]
            for at in positions:
                token = sequence.tokens[at]
                block = data[table[at // size]]
                block[0, place.slot, at % size], block[1, place.slot, at % size] = layer.k[token], layer.v[token]


def layers(
    t: Target, rng: Rng, tokens: int, windows: Sequence[int | None] = (None, None), *, heads: int = 2,
    kv_dtype: str | None = None,
) -> Layers:  # fmt: skip
    """Layers of random numbers that activations and cache both hold exactly; an int8 cache is left to what it does."""
    dtype = kv_dtype or t.kv_dtype
    dim = heads_of(t).head_dim

    def numbers() -> F32:
        x = t.stored(rng.normal(tokens, heads, dim))
        return floats.rounded(x, dtype) if dtype in floats.UNIT else x

    made = tuple(Layer(numbers(), numbers(), window) for window in windows)
    return Layers(t, made, t.stored(rng.normal(tokens, heads * dim)), dtype)


def float_caches(t: Target) -> list[str]:
    """The declared cache types that keep numbers as they are, up to rounding."""
    return [d for d in t.capabilities.kv_dtypes if d in floats.UNIT]


def sizes(t: Target) -> list[int]:
    """The smallest, the largest and the preferred block size."""
    found = t.capabilities.block_sizes
    return sorted({min(found), max(found), t.block_size})


def one_row(sequence: Seq, start: int, count: int, **options: Any) -> Step:
    """A step of one row."""
    return Step((sequence,), (Row(0, start, count),), **options)
