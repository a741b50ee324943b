"""From a model graph to the native plan: a flat list of steps over few buffers.

Fusions made here: an op whose only reader is a quantized linear writes quantized activations and no floats; rope, the
norm of q and k, and attention work in place; the output matrix keeps its logits to itself where only the best is asked
for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from octavo.errors import UnsupportedFeature
from octavo.graph import Graph, Node, RopeSpec, TensorType
from octavo_cpu.refinement import OUTPUT_ABOVE

OPS = (
    "embed", "rms_norm", "quantise", "linear", "rope", "write_kv", "attention",
    "gated", "add", "mul", "scale", "softcap", "take_rows", "bias", "layer_norm", "pool", "pooled",
)  # fmt: skip
"""Native ops in the order of the library's own numbering."""

GATES = ("silu", "gelu_tanh", "gelu", "relu")
POOLINGS = ("mean", "first", "last")
DOMAINS = ("T", "S", "R")
"""What a step goes through, as the library numbers it: tokens, those to sample, sequences."""
FLOAT_FORMATS = frozenset({"f32", "f16"})

NONE, INT8, BF16 = 0, 1, 2
"""What a step feeds to the linear after it: the library's Feed."""


@dataclass(frozen=True)
class TableRow:
    """Which row of its table a token is embedded as: its id, or its position, through the op ``map_ids``."""

    positions: bool = False
    divide: int = 1
    modulo: int = 0
    add: int = 0


@dataclass(frozen=True)
class Step:
    """One native step. Numbers are ids that the library gave out; -1 is none."""

    op: str
    domain: str = "T"
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    matrices: tuple[str, ...] = ()
    vector: str = ""
    bias: str = ""
    rope: RopeSpec | None = None
    width: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    group: int = 0
    slot: int = 0
    window: int = 0
    run: int = 0
    gate: str = "silu"
    feed: int = NONE
    refine: float = 0.0
    logits: bool = False
    bidirectional: bool = False
    pooling: str = "mean"
    table: TableRow = TableRow()
    eps: float = 0.0
    scale: float = 0.0
    softcap: float = 0.0
    offset: float = 0.0


@dataclass
class Program:
    """The plan: steps, and the widths of its buffers."""

    steps: list[Step] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    vocab: int = 0
    scored: str = "S"
    """The domain of the logits."""
    pooled: int = 0
    """Width of the vectors that a model makes in place of logits; 0 for none."""

    def __str__(self) -> str:
        return "\n".join(_line(s) for s in self.steps)


def _line(step: Step) -> str:
    """One step for people: outputs, op, inputs, weights, what it feeds."""
    written, read = (", ".join(f"b{b}" for b in buffers if b >= 0) for buffers in (step.outputs, step.inputs))
    weights = ", ".join(step.matrices) or step.vector
    feeds = ("", "feeds int8", "feeds bf16")[step.feed]
    return "  ".join(part for part in (f"{written or '-'} <- {step.op}({read})", weights, feeds) if part)


def lower(graph: Graph, refine_above: float | None = math.inf) -> Program:
    """The plan of a fused graph; see `octavo_cpu.refinement`. UnsupportedFeature names a node that it cannot run."""
    return _Lowering(graph, refine_above).run()


def feed_kind(weight_format: str) -> int:
    """What activations a matrix of this format multiplies."""
    return NONE if weight_format in FLOAT_FORMATS else BF16 if weight_format == "bf16" else INT8


class _Lowering:
    def __init__(self, graph: Graph, refine_above: float | None) -> None:
        self._graph = graph
        self._refine_above = refine_above
        self._program = Program()
        self._buffer_of: dict[str, int] = {}
        self._free: list[int] = []
        self._resting: list[int] = []  # free, but not for the very next step; see _done
        self._fed: dict[int, str] = {}  # kind -> the value whose quantized form is at hand
        self._producer: dict[str, int] = {}  # value -> index of the step that can feed it
        self._uses = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs.values())
        self._made_by = {value: node.op for node in graph.nodes for value in node.outputs}
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self._readers.setdefault(value, []).append(node)
        self._handlers: Mapping[str, Callable[[Node], None]] = {
            "embed": self._embed, "rms_norm": self._rms_norm, "linear": self._linear, "rope": self._rope,
            "attention": self._attention, "gated_activation": self._gated, "add": self._binary, "mul": self._binary,
            "scale": self._scale, "softcap": self._softcap, "take_rows": self._take_rows, "map_ids": self._map_ids,
            "layer_norm": self._layer_norm, "activation": self._gated, "pool": self._pool,
        }  # fmt: skip
        self._rows_of: dict[str, TableRow] = {"tokens": TableRow(), "positions": TableRow(positions=True)}

    def run(self) -> Program:
        for node in self._graph.nodes:
            handler = self._handlers.get(node.op)
            if handler is None:
                raise UnsupportedFeature(
                    f"cpu: op {node.op} in {node.scope or 'the top scope'} has no native kernel", feature=node.op
                )
            if node.op != "linear":
                self._wake()
            handler(node)
        if "pooled" in self._graph.outputs:
            self._wake()
            value = self._graph.outputs["pooled"]
            width = self._program.pooled = self._type(value).width
            self._emit(Step("pooled", "R", inputs=(self._take(value),), width=width))
        return self._program

    # -- buffers ----------------------------------------------------------------------------------

    def _type(self, value: str) -> TensorType:
        return self._graph.types[value]

    def _domain(self, value: str) -> str:
        return str(self._type(value).shape[0])

    def _stride(self, width: int) -> int:
        return -(-width // 16) * 16

    def _new(self, value: str) -> int:
        """A buffer for a value: a free one of the same stride, or another."""
        width = self._type(value).width
        for buffer in self._free:
            if self._stride(self._program.buffers[buffer]) == self._stride(width):
                self._free.remove(buffer)
                break
        else:
            buffer = len(self._program.buffers)
            self._program.buffers.append(width)
        self._buffer_of[value] = buffer
        return buffer

    def _take(self, value: str) -> int:
        """The buffer of a value that a node reads; counts the reading."""
        self._uses[value] -= 1
        return self._buffer_of[value]

    def _done(self, *values: str) -> None:
        """Free the buffers of values that nobody reads any more.

        A linear must not write to them if it comes next: there is no barrier between a step that workers repeat and
        the linear that it feeds, so one worker may still read what it repeats.
        """
        for value in values:
            if self._uses[value] == 0 and value in self._buffer_of:
                self._resting.append(self._buffer_of.pop(value))

    def _wake(self) -> None:
        self._free += self._resting
        self._resting.clear()

    def _take_over(self, old: str, new: str) -> int:
        """Work in place: the buffer of `old`, whose last reading this is, becomes that of `new`; a copy otherwise."""
        source = self._take(old)
        if self._uses[old] == 0:
            self._buffer_of[new] = self._buffer_of.pop(old)
            return source
        target = self._new(new)
        self._emit(Step("scale", self._domain(new), (source,), (target,), width=self._type(new).width, scale=1.0))
        return target

    def _emit(self, step: Step, *, feeds: str | None = None) -> None:
        if feeds is not None:
            self._producer[feeds] = len(self._program.steps)
        self._program.steps.append(step)

    # -- quantized activations --------------------------------------------------------------------

    def _feed_only(self, value: str) -> int:
        """The kind that alone is read of a value (by one linear whose matrices agree), or NONE."""
        readers = self._readers.get(value, [])
        if len(readers) != 1 or readers[0].op != "linear" or value in self._graph.outputs.values():
            return NONE
        kinds = {feed_kind(self._graph.weights[w].format) for w in _matrices(readers[0])}
        return kinds.pop() if len(kinds) == 1 else NONE

    def _ensure_fed(self, value: str, kind: int) -> None:
        if self._fed.get(kind) == value:
            return
        width = self._type(value).width
        step = Step("quantise", self._domain(value), (self._buffer_of[value],), width=width, feed=kind)
        self._emit(replace(step, refine=self._refinement(value)))
        self._fed[kind] = value

    def _refinement(self, value: str) -> float:
        """The threshold of the library's ``refine`` for a value that is fed as int8.

        What the output matrix multiplies is refined first: it is few rows, and what it loses nothing evens out. What
        attention makes is a mean of values, without the outliers that finer codes are for.
        """
        if self._refine_above is None:
            return math.inf
        if any(reader.op == "linear" and self._logits_cap(reader) for reader in self._readers.get(value, [])):
            return OUTPUT_ABOVE if math.isinf(self._refine_above) else 0.0
        evened_out = self._made_by.get(value) == "attention"
        return math.inf if evened_out and self._refine_above else self._refine_above

    def _result(self, value: str) -> tuple[int, int]:
        """(buffer or -1, feed) for a node that can feed a linear itself."""
        kind = self._feed_only(value)
        if kind == NONE:
            return self._new(value), NONE
        self._fed[kind] = value
        return -1, kind

    # -- nodes ------------------------------------------------------------------------------------

    def _embed(self, node: Node) -> None:
        (out,) = node.outputs
        width, row = self._type(out).width, self._rows_of[node.inputs[0]]
        self._emit(Step("embed", outputs=(self._new(out),), vector=node.weights[0], width=width, table=row))

    def _map_ids(self, node: Node) -> None:
        """No step of its own: tables are read by what it says."""
        before = self._rows_of[node.inputs[0]]
        if replace(before, positions=False) != TableRow():
            where = node.scope or "the top scope"
            raise UnsupportedFeature(f"cpu: map_ids of mapped ids in {where} has no native kernel", feature="map_ids")
        divide, modulo, add = (int(_number(node, name)) for name in ("divide", "modulo", "add"))
        self._rows_of[node.outputs[0]] = replace(before, divide=divide or 1, modulo=modulo, add=add)

    def _rms_norm(self, node: Node) -> None:
        normed = node.outputs[0]
        x = node.inputs[0]
        width = self._type(normed).width
        run = self._graph.weights[node.weights[0]].shape[0]
        residual, total = -1, -1
        source = self._take(x)
        if len(node.inputs) == 2:
            residual = self._take(node.inputs[1])
            total = self._new(node.outputs[1])  # not in place: workers may repeat this step, each reading its inputs
        elif self._uses[x] == 0 and self._feed_only(normed) == NONE:
            self._buffer_of[normed] = self._buffer_of.pop(x)
        target, feed = (self._buffer_of[normed], NONE) if normed in self._buffer_of else self._result(normed)
        self._emit(
            Step(
                "rms_norm",
                self._domain(normed),
                (source, residual),
                (target, total),
                vector=node.weights[0],
                width=width,
                run=run,
                feed=feed,
                refine=self._refinement(normed),
                eps=_number(node, "eps"),
                offset=_number(node, "offset"),
            )
        )
        self._done(*node.inputs)

    def _layer_norm(self, node: Node) -> None:
        (normed,) = node.outputs
        x = node.inputs[0]
        source = self._take(x)
        if self._uses[x] == 0 and self._feed_only(normed) == NONE:
            self._buffer_of[normed] = self._buffer_of.pop(x)
        target, feed = (self._buffer_of[normed], NONE) if normed in self._buffer_of else self._result(normed)
        self._emit(
            Step(
                "layer_norm",
                self._domain(normed),
                (source,),
                (target,),
                vector=node.weights[0],
                bias=node.weights[1] if len(node.weights) > 1 else "",
                width=self._type(normed).width,
                feed=feed,
                refine=self._refinement(normed),
                eps=_number(node, "eps"),
            )
        )
        self._done(x)

    def _linear(self, node: Node) -> None:
        x = node.inputs[0]
        matrices = _matrices(node)
        biases = node.weights[len(matrices) :]
        logits = self._logits_cap(node)
        if logits:
            logits_type = self._type(self._graph.outputs["logits"])
            self._program.vocab, self._program.scored = logits_type.width, str(logits_type.shape[0])
        self._uses[x] -= 1
        by_kind: dict[int, list[int]] = {}
        for i, name in enumerate(matrices):
            by_kind.setdefault(feed_kind(self._graph.weights[name].format), []).append(i)
        outputs = {} if logits else {i: self._new(v) for i, v in enumerate(node.outputs)}
        for kind, members in by_kind.items():
            if kind != NONE:
                self._ensure_fed(x, kind)
            for start in range(0, len(members), 4):
                part = members[start : start + 4]
                step = Step(
                    "linear",
                    self._domain(node.outputs[0]),
                    (self._buffer_of.get(x, -1),),
                    tuple(outputs.get(i, -1) for i in part),
                    tuple(matrices[i] for i in part),
                )
                if logits:
                    step = replace(step, logits=True, softcap=logits[0], vector=biases[0] if biases else "")
                self._emit(step)
        for i, bias in enumerate(() if logits else biases):
            self._emit(
                Step(
                    "bias",
                    self._domain(node.outputs[i]),
                    outputs=(outputs[i],),
                    vector=bias,
                    width=self._type(node.outputs[i]).width,
                )
            )
        self._wake()
        self._done(x)

    def _logits_cap(self, node: Node) -> tuple[float] | None:
        """(softcap or 0,) if this linear makes the model's logits."""
        if len(node.outputs) != 1:
            return None
        value, cap = node.outputs[0], 0.0
        readers = self._readers.get(value, [])
        if len(readers) == 1 and readers[0].op == "softcap":
            value, cap = readers[0].outputs[0], _number(readers[0], "cap")
        return (cap,) if self._graph.outputs.get("logits") == value else None

    def _rope(self, node: Node) -> None:
        spec = RopeSpec.from_attrs(node.attrs)
        q, k = (self._take_over(old, new) for old, new in zip(node.inputs[:2], node.outputs, strict=True))
        heads, kv_heads = (self._type(v).width // spec.head_dim for v in node.outputs)
        self._emit(Step("rope", inputs=(q, k), rope=spec, heads=heads, kv_heads=kv_heads, head_dim=spec.head_dim))

    def _attention(self, node: Node) -> None:
        layer = self._graph.kv[int(_number(node, "layer"))]
        k, v = (self._take(value) for value in node.inputs[1:3])
        last = self._program.steps[-1]
        if last.op == "rope" and last.inputs[1] == k:  # one pass over the token, and one barrier less
            self._program.steps[-1] = replace(last, inputs=(*last.inputs, v), group=layer.group, slot=layer.slot)
        else:
            heads, dim = layer.kv_heads, layer.head_dim
            self._emit(
                Step("write_kv", inputs=(k, v), kv_heads=heads, head_dim=dim, group=layer.group, slot=layer.slot)
            )
        out = node.outputs[0]
        q = self._take_over(node.inputs[0], out)
        self._emit(
            Step(
                "attention",
                inputs=(q,),
                outputs=(q,),
                vector=node.weights[0] if node.weights else "",
                width=self._type(out).width,
                heads=int(_number(node, "heads")),
                kv_heads=layer.kv_heads,
                head_dim=layer.head_dim,
                group=layer.group,
                slot=layer.slot,
                window=layer.window or 0,
                bidirectional=node.attrs.get("causal") is False,
                scale=_number(node, "scale"),
                softcap=_number(node, "softcap"),
            )
        )
        self._done(*node.inputs[1:3])

    def _gated(self, node: Node) -> None:
        """An activation, times a second input where there is one."""
        inputs = tuple(self._take(v) for v in node.inputs)
        out = node.outputs[0]
        target, feed = self._result(out)
        self._emit(
            Step(
                "gated",
                self._domain(out),
                inputs,
                (target,),
                width=self._type(out).width,
                refine=self._refinement(out),
                gate=str(node.attrs["kind"]),
                feed=feed,
            )
        )
        self._done(*node.inputs)

    def _binary(self, node: Node) -> None:
        a, b = (self._take(v) for v in node.inputs)
        out = node.outputs[0]
        self._emit(Step(node.op, self._domain(out), (a, b), (self._new(out),), width=self._type(out).width))
        self._done(*set(node.inputs))

    def _scale(self, node: Node) -> None:
        out = node.outputs[0]
        buffer = self._take_over(node.inputs[0], out)
        self._emit(
            Step(
                "scale",
                self._domain(out),
                (buffer,),
                (buffer,),
                width=self._type(out).width,
                scale=_number(node, "factor"),
            )
        )

    def _softcap(self, node: Node) -> None:
        if node.inputs[0] not in self._buffer_of:  # the logits' own, folded into their step
            return
        out = node.outputs[0]
        buffer = self._take_over(node.inputs[0], out)
        self._emit(
            Step(
                "softcap",
                self._domain(out),
                (buffer,),
                (buffer,),
                width=self._type(out).width,
                softcap=_number(node, "cap"),
            )
        )

    def _take_rows(self, node: Node) -> None:
        source = self._take(node.inputs[0])
        out = node.outputs[0]
        self._emit(Step("take_rows", "S", (source,), (self._new(out),), width=self._type(out).width))
        self._done(node.inputs[0])

    def _pool(self, node: Node) -> None:
        source = self._take(node.inputs[0])
        out = node.outputs[0]
        width, kind = self._type(out).width, str(node.attrs["kind"])
        self._emit(Step("pool", "R", (source,), (self._new(out),), width=width, pooling=kind))
        self._done(node.inputs[0])


def _matrices(node: Node) -> tuple[str, ...]:
    return node.weights[: len(node.outputs)]


def _number(node: Node, name: str) -> float:
    value = node.attrs.get(name, 0.0)
    assert isinstance(value, int | float), f"{name} is {value!r}"
    return float(value)
