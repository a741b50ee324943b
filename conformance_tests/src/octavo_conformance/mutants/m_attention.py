"""Faults in attention: what it sees, by which scale, from which head, and what it brings."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph, Node
from octavo.platform import Bucket, Executable, KVLayout, KVStore, StepInput, StepOutput
from octavo.quant import WeightTensor, dequantise
from octavo_conformance.harness.probe import stored
from octavo_conformance.judge import floats
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped


class Edited(Wrapped):
    """Changes the graph's nodes, one by one."""

    def graph(self, graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(self.node(node) for node in graph.nodes))

    def node(self, node: Node) -> Node:
        """The node that runs in place of ``node``."""
        return node


def attention_with(node: Node, **attrs: Any) -> Node:
    """An attention node with other attributes; any other node as it is."""
    return replace(node, attrs={**node.attrs, **attrs}) if node.op == "attention" else node


def split(step: StepInput, contexts: npt.NDArray[np.int64]) -> StepInput:
    """Every token as a row of its own that sees ``contexts[token]`` tokens of its sequence."""
    counts = np.diff(step.query_starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    return replace(
        step,
        query_starts=np.arange(len(owner) + 1, dtype=np.int32),
        context_lens=contexts.astype(np.int32),
        block_tables=np.ascontiguousarray(step.block_tables[:, owner]),
    )


def positions(step: StepInput) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(row, position in its sequence) of every token that is not padding."""
    counts = np.diff(step.query_starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - step.query_starts[:-1][owner]
    return owner, step.context_lens[owner] - counts[owner] + within


@mutant("M03", "a query does not see its own token",
        killed_by=("att.prefill_causal", "att.decode_single", "att.decode_batch"))  # fmt: skip
class MissesItself(Wrapped):
    """But where there is nothing else. Where shapes are static the context of each row is one shorter."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        if step.bucket != Bucket():
            shorter = np.where(step.context_lens > 1, step.context_lens - 1, step.context_lens)
            return replace(step, context_lens=shorter.astype(np.int32))
        return split(step, np.maximum(positions(step)[1], 1))


@mutant("M04.wider", "a window sees one token too many", killed_by=("att.sliding_window_edge",))
class WiderWindow(Wrapped):
    """W + 1."""

    by = 1

    def graph(self, graph: Graph) -> Graph:
        def changed(window: Any) -> int | None:
            return None if window is None else max(1, window + self.by)

        nodes = tuple(
            attention_with(n, window=changed(n.attrs["window"])) if n.attrs.get("window") else n for n in graph.nodes
        )
        return replace(graph, nodes=nodes, kv=tuple(replace(k, window=changed(k.window)) for k in graph.kv))


@mutant("M04.narrower", "a window sees one token too few", killed_by=("att.sliding_window_edge",))
class NarrowerWindow(WiderWindow):
    """W - 1."""

    by = -1


@mutant("M05", "from the second chunk of a prompt on, nothing is masked", killed_by=("att.chunked_prefill",))
class UnmaskedChunks(Wrapped):
    """Every token of a chunk that is not the first sees all of the chunk."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        if step.bucket != Bucket():
            return step
        owner, position = positions(step)
        first = step.context_lens == np.diff(step.query_starts)
        return split(step, np.where(first[owner], position + 1, step.context_lens[owner]))


@mutant("M06.more", "scores are 2 % too large", killed_by=("att.scale",))
class LargerScale(Edited):
    """The scale times 1.02."""

    def node(self, node: Node) -> Node:
        return attention_with(node, scale=float(node.attrs.get("scale", 1.0)) * 1.02)  # type: ignore[arg-type]


@mutant("M06.inverse", "scores are divided by the head size, not by its root",
        killed_by=("att.scale", "att.head_dims"))  # fmt: skip
class InverseScale(Edited):
    """Whatever the layer says."""

    def node(self, node: Node) -> Node:
        return attention_with(node, scale=1.0 / int(node.attrs.get("head_dim", 1)))  # type: ignore[arg-type]


class _Spoiling(Wrapped):
    """Adds 0 times something of the pool to the logits: nothing, unless that is not finite."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._added: deque[npt.NDArray[np.float32]] = deque()

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        ticket = executable.submit(step, store)
        rows = np.zeros(len(step.context_lens), np.float32)
        if step.block_tables.size:
            for row, context in enumerate(step.context_lens.tolist()):
                if context:
                    rows[row] = 0 * self.read(step, store, row, context)
        owner = np.searchsorted(step.query_starts[1:], step.sample_rows, side="right")
        self._added.append(rows[np.minimum(owner, len(rows) - 1)])
        return ticket

    def output(self, output: StepOutput) -> StepOutput:
        added = self._added.popleft()
        if output.logits is None:
            return output
        return replace(output, logits=output.logits + added[:, None])

    def read(self, step: StepInput, store: KVStore, row: int, context: int) -> float:
        """What is let through."""
        raise NotImplementedError


@mutant("M07", "values beyond the context are multiplied by 0, not left out",
        killed_by=("att.tile_straddle_poison", "att.poison_unused_blocks"))  # fmt: skip
class ZeroTimesTail(_Spoiling):
    """Of the last block, for rows of one new token."""

    def read(self, step: StepInput, store: KVStore, row: int, context: int) -> float:
        size = store.layout.block_size
        if context % size == 0:
            return 0.0
        block = int(step.block_tables[0, row, context // size])
        with np.errstate(invalid="ignore"):
            return float(store.read_block(block)[1, :, context % size :].sum())


@mutant("M08", "the table entry after the last is read",
        killed_by=("att.table_tail_garbage", "att.poison_unused_blocks"))  # fmt: skip
class ReadsTail(_Spoiling):
    """Where the table has one."""

    def read(self, step: StepInput, store: KVStore, row: int, context: int) -> float:
        used = -(-context // store.layout.block_size)
        if used >= step.block_tables.shape[2]:
            return 0.0
        with np.errstate(invalid="ignore"):
            return float(store.read_block(int(step.block_tables[0, row, used])).sum())


@mutant("M10", "a chunk after a cached prefix begins a block too early", killed_by=("att.prefix_hit",))
class PrefixShort(Wrapped):
    """A chunk of several tokens that begins at the end of a block sees one block less."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        counts = np.diff(step.query_starts)
        start = step.context_lens - counts
        hit = (counts > 1) & (start > 0) & (start % layout.block_size == 0)
        shorter = np.where(hit, step.context_lens - layout.block_size, step.context_lens)
        return replace(step, context_lens=shorter.astype(np.int32))


@mutant("M13", "query head h reads KV head h % kv_heads", killed_by=("att.gqa_map",))
class WrongHead(Wrapped):
    """The heads of the queries change places on the way in, and back on the way out."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._columns: npt.NDArray[np.intp] | None = None

    def graph(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            if node.op == "attention":
                sizes = [node.attrs[name] for name in ("heads", "kv_heads", "head_dim")]
                heads, kv_heads, dim = (int(size) for size in sizes)  # type: ignore[arg-type]
                order = np.argsort(np.arange(heads) % kv_heads, kind="stable")
                self._columns = (order[:, None] * dim + np.arange(dim)).reshape(-1)
        return graph

    def weights(self, weights: Mapping[str, WeightTensor]) -> Mapping[str, WeightTensor]:
        if self._columns is None or "q.weight" not in weights:
            return weights
        changed = dict(weights)
        for name in ("q.weight", "head.weight"):
            values = dequantise(weights[name])
            if values.shape[1] == len(self._columns):
                changed[name] = stored(values[:, self._columns], weights[name].format.name)
        return changed


@mutant("M14", "the parts of a split context are joined without their totals", killed_by=("att.long_context",))
class EqualParts(Wrapped):
    """Contexts beyond 1024 tokens are run in two parts, whose results are averaged."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._parts: deque[tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]] | None] = deque()

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        size = store.layout.block_size
        cut = 1024 // size
        single = bool((np.diff(step.query_starts)[step.context_lens > 0] == 1).all())
        rows = step.context_lens > 1024
        if not single or not rows.any() or step.bucket != Bucket():
            self._parts.append(None)
            return executable.submit(step, store)
        first = replace(step, context_lens=np.where(rows, 1024, step.context_lens).astype(np.int32))
        logits = executable.collect(executable.submit(first, store)).logits
        assert logits is not None
        tables = step.block_tables.copy()
        tables[:, rows, :-cut] = step.block_tables[:, rows, cut:]
        rest = np.where(rows, step.context_lens - cut * size, step.context_lens).astype(np.int32)
        self._parts.append((rows, logits.copy()))
        return executable.submit(replace(step, block_tables=tables, context_lens=rest), store)

    def output(self, output: StepOutput) -> StepOutput:
        kept = self._parts.popleft()
        if kept is None or output.logits is None:
            return output
        rows, first = kept
        return replace(output, logits=np.where(rows[:, None], (output.logits + first) / 2, output.logits))


@mutant("M15", "scores saturate where their exponential would overflow", killed_by=("att.logit_extremes",))
class Saturated(Edited):
    """At 88, as without the subtraction of the largest."""

    def node(self, node: Node) -> Node:
        return attention_with(node, softcap=88.0)


@mutant("M16", "results are kept as bf16", killed_by=("att.prefill_causal",))
class Coarse(Wrapped):
    """As an accumulator of too few bits leaves them: rounded down on the way."""

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is None:
            return output
        third = floats.rounded(output.logits / np.float32(3), "bf16")
        return replace(output, logits=floats.rounded(third * np.float32(3), "bf16"))


@mutant("M17.softcap", "scores are not capped", killed_by=("att.softcap",))
class Uncapped(Edited):
    """The attribute is not read."""

    def node(self, node: Node) -> Node:
        if node.op != "attention":
            return node
        return replace(node, attrs={name: value for name, value in node.attrs.items() if name != "softcap"})


@mutant("M17.sinks", "sinks are left out of the softmax", killed_by=("att.sinks",))
class NoSinks(Wrapped):
    """As if each were far below every score."""

    def weights(self, weights: Mapping[str, WeightTensor]) -> Mapping[str, WeightTensor]:
        if "sinks" not in weights:
            return weights
        lowest = np.full(weights["sinks"].shape, -30000.0, np.float32)
        return {**weights, "sinks": stored(lowest, weights["sinks"].format.name)}


@mutant("M26", "values are scaled as keys are", killed_by=("att.kv_scales",))
class OneScale(Wrapped):
    """Results come out by as much too small or too large as the largest key of a row's last block is than its largest
    value.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._factors: deque[npt.NDArray[np.float32]] = deque()

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        ticket = executable.submit(step, store)
        factors = np.ones(len(step.context_lens), np.float32)
        for row, context in enumerate(step.context_lens.tolist()):
            if context:
                held = store.read_block(int(step.block_tables[0, row, (context - 1) // store.layout.block_size]))
                factors[row] = np.nanmax(np.abs(held[0])) / np.nanmax(np.abs(held[1]))
        owner = np.searchsorted(step.query_starts[1:], step.sample_rows, side="right")
        self._factors.append(factors[np.minimum(owner, len(factors) - 1)])
        return ticket

    def output(self, output: StepOutput) -> StepOutput:
        factors = self._factors.popleft()
        return output if output.logits is None else replace(output, logits=output.logits * factors[:, None])


@mutant("M32", "results differ from run to run", killed_by=("att.run_to_run",))
class Unsteady(Wrapped):
    """Every other step is off by one unit in the last place."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._steps = 0

    def output(self, output: StepOutput) -> StepOutput:
        self._steps += 1
        if output.logits is None or self._steps % 2:
            return output
        return replace(output, logits=np.nextafter(output.logits, np.float32(np.inf)))


@mutant("M33", "in steps of more than eight rows the last ones see a token less",
        killed_by=("att.batch_order", "att.batch_size_invariance"))  # fmt: skip
class ManyRows(Wrapped):
    """From the ninth row on, and those of static shapes where padding does not hide it: from the third."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        late = np.arange(len(step.context_lens)) >= (8 if step.bucket == Bucket() else 2)
        shorter = np.where(late & (step.context_lens > 1), step.context_lens - 1, step.context_lens)
        return replace(step, context_lens=shorter.astype(np.int32))


@mutant("M46.previous", "every step brings the result of the one before", killed_by=("att.prefill_causal",))
class Previous(Wrapped):
    """Where the shapes are the same; the first brings zeros."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._last: npt.NDArray[np.float32] | None = None

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is None:
            return output
        last, self._last = self._last, output.logits.copy()
        same = last is not None and last.shape == output.logits.shape
        return replace(output, logits=last if same else np.zeros_like(output.logits))


@mutant("M46.mean", "every result is the mean of its row", killed_by=("att.prefill_causal",))
class Mean(Wrapped):
    """What a tolerance that is absolute lets pass."""

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is None:
            return output
        return replace(output, logits=np.broadcast_to(output.logits.mean(1, keepdims=True), output.logits.shape).copy())
