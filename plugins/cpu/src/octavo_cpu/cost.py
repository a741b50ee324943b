"""What a native step must read and compute at least: what its time is held against.

Operations are counted as `octavo.graph.step_cost` counts them. Bytes are those that come from memory: weights as they
are packed, keys and values as the cache keeps them, each once; for what moves activations only, which lie in the
caches, they are what it reads and writes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.graph import WeightSpec
from octavo.platform import StepInput
from octavo_cpu.kv_store import ELEMENT_BYTES
from octavo_cpu.lower import BF16, INT8, NONE, Step, feed_kind
from octavo_cpu.machine import Ceilings

F32_BYTES = 4  # of an element
ARITHMETIC = {NONE: "f32", INT8: "int8", BF16: "bf16"}
_PER_ELEMENT = {
    "rms_norm": 4, "layer_norm": 6, "gated": 9, "add": 1, "mul": 1, "scale": 1, "softcap": 8, "bias": 1, "quantise": 4,
}  # fmt: skip
"""Operations per element. Quantising: the largest size, a product, a rounding, a sum; `step_cost` has no such op."""


@dataclass(frozen=True)
class Work:
    """Bytes, and operations in the numbers of ``arithmetic``. ``from_memory``: the bytes are not in a cache."""

    bytes: float
    operations: float
    arithmetic: str = "f32"
    from_memory: bool = False

    def limit(self, ceilings: Ceilings) -> float | None:
        """The least seconds it can take; None where activations alone move: nothing is measured that bounds them."""
        if not self.from_memory:
            return None
        return max(self.bytes / ceilings.read_bytes, self.operations / ceilings.peak(self.arithmetic))


@dataclass(frozen=True)
class Load:
    """The sizes of an engine step. ``counts`` are the rows' new tokens, ``contexts`` their tokens after the step.

    ``kv_bytes`` are those of a key's or value's element in the cache.
    """

    samples: int
    counts: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.int64]
    kv_bytes: float

    @classmethod
    def of(cls, step: StepInput, kv_dtype: str) -> Load:
        """The sizes of a step over a cache of ``kv_dtype``."""
        counts, contexts = np.diff(step.query_starts).astype(np.int64), step.context_lens.astype(np.int64)
        return cls(len(step.sample_rows), counts, contexts, ELEMENT_BYTES[kv_dtype])

    @property
    def tokens(self) -> int:
        """New tokens of all rows."""
        return int(self.counts.sum())

    def seen(self, window: int, *, bidirectional: bool = False) -> int:
        """Positions that the queries see, summed over the queries; ``window`` 0 is none."""
        total = 0
        for count, context in zip(self.counts.tolist(), self.contexts.tolist(), strict=True):
            seen = np.full(count, context) if bidirectional else np.arange(context - count + 1, context + 1)
            total += int(np.minimum(seen, window).sum() if window else seen.sum())
        return total

    def visited(self, window: int) -> int:
        """Positions whose keys and values are read, summed over the rows that have new tokens."""
        first = np.maximum(0, self.contexts - self.counts - window + 1) if window else np.zeros_like(self.contexts)
        return int((self.contexts - first)[self.counts > 0].sum())


def step_work(step: Step, specs: Mapping[str, WeightSpec], packed: Mapping[str, int], load: Load) -> Work:
    """The work of one native step. ``packed`` are the bytes of the packed matrices, by name."""
    rows = {"T": load.tokens, "S": load.samples, "R": len(load.counts)}[step.domain]
    if step.op == "linear":
        elements = sum(specs[name].shape[0] * specs[name].shape[1] for name in step.matrices)
        capped = specs[step.matrices[0]].shape[0] if step.logits and step.softcap else 0
        operations = rows * (2.0 * elements + _PER_ELEMENT["softcap"] * capped)
        arithmetic = ARITHMETIC[feed_kind(specs[step.matrices[0]].format)]
        return Work(float(sum(packed[name] for name in step.matrices)), operations, arithmetic, True)
    if step.op == "attention":
        queries, kept = step.heads * step.head_dim, 2 * step.kv_heads * step.head_dim
        read = float(load.visited(step.window) * kept * load.kv_bytes)
        return Work(read, 4.0 * queries * load.seen(step.window, bidirectional=step.bidirectional), "bf16", True)
    if step.op == "rope":
        turned, kept = (step.heads + step.kv_heads) * step.head_dim, 2 * step.kv_heads * step.head_dim
        written = kept * (F32_BYTES / 2 + load.kv_bytes) if len(step.inputs) > 2 else 0.0
        return Work(rows * (2.0 * turned * F32_BYTES + written), 3.0 * rows * turned)
    if step.op == "write_kv":
        return Work(float(rows * 2 * step.kv_heads * step.head_dim * (F32_BYTES + load.kv_bytes)), 0.0)
    arrays = sum(buffer >= 0 for buffer in (*step.inputs, *step.outputs)) + (step.feed != NONE) / 2
    return Work(rows * step.width * arrays * F32_BYTES, float(rows * step.width * _PER_ELEMENT.get(step.op, 0)))
