"""The builder: what a model file calls to describe itself.

Weights are named as Hugging Face checkpoints name them: the scopes, the name given, then ``.weight`` or
``.bias``. Reading a model file should tell what the model computes; nothing here knows ranks or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from octavo.errors import GraphError
from octavo.graph.ir import Axis, Graph, Node, TensorType, WeightSpec, assign_kv_groups, freeze, step_inputs
from octavo.graph.ops import OPS
from octavo.graph.rope import RopeSpec

AxisName: TypeAlias = "Axis | str | None"
"""The logical axis of a weight's dimension; a name alone where each row or column is a unit."""


@dataclass(frozen=True)
class Value:
    """A handle on one value while a graph is built."""

    name: str
    type: TensorType


class Builder:
    """Collects nodes and weights into a `Graph`.

    ``dtype`` is that of the activations. ``format_of`` tells the WeightFormat name of a weight, so that each
    keeps the format its checkpoint has.
    """

    def __init__(self, name: str, dtype: str = "f32", format_of: Callable[[str], str] = lambda weight: "f32") -> None:
        self._name = name
        self._dtype = dtype
        self._format_of = format_of
        self._scopes: list[str] = []
        self._layer: int | None = None
        self._weights: dict[str, WeightSpec] = {}
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = dict(step_inputs(groups=0))
        self._outputs: dict[str, str] = {}
        self._kv: list[tuple[int, int, int | None]] = []
        self.tokens = Value("tokens", self._types["tokens"])
        self.positions = Value("positions", self._types["positions"])

    @contextmanager
    def scope(self, name: str, *, layer: int | None = None) -> Iterator[None]:
        """Prefix the names of weights made inside with ``name`` and a dot. ``layer`` is the index of the model's layer
        that is built inside.
        """
        before = self._layer
        self._scopes.append(name)
        self._layer = before if layer is None else layer
        try:
            yield
        finally:
            self._scopes.pop()
            self._layer = before

    # -- ops, in the order a decoder meets them ------------------------------------------------

    def map_ids(self, ids: Value, *, divide: int = 1, modulo: int | None = None, add: int = 0) -> Value:
        """``ids // divide % modulo + add``, for tables that are not read by the token's own id: [T], integers."""
        return self._one("map_ids", [ids], [], {"divide": divide, "modulo": modulo, "add": add})

    def embed(self, name: str, *, vocab: int, width: int, ids: Value | None = None) -> Value:
        """Rows of the table ``name`` [vocab, width] for the step's tokens (or ``ids``): [T, width]."""
        weight = self._weight(name, (vocab, width), ("vocab", "embed"))
        return self._one("embed", [ids or self.tokens], [weight], {"dtype": self._dtype})

    def linear(
        self,
        x: Value,
        name: str,
        outputs: int,
        *,
        axes: tuple[AxisName, AxisName] = (None, None),
        bias: bool = False,
    ) -> Value:
        """``x @ W.T (+ b)``, W [outputs, width of x]; ``axes`` are those of W's two dimensions."""
        return self.linear_split(x, [name], [outputs], axes=[axes[0]], in_axis=axes[1], bias=bias)[0]

    def linear_split(
        self,
        x: Value,
        names: Sequence[str],
        outputs: Sequence[int],
        *,
        axes: Sequence[AxisName] | None = None,
        in_axis: AxisName = "embed",
        bias: bool = False,
    ) -> tuple[Value, ...]:
        """Several linear maps of one input, which a platform may run as one matrix."""
        rows_axes = axes or [None] * len(names)
        width = self._width("linear", x)
        weights = [
            self._weight(name, (size, width), (axis, in_axis))
            for name, size, axis in zip(names, outputs, rows_axes, strict=True)
        ]
        if bias:
            weights += [
                self._weight(name, (size,), (axis,), suffix="bias")
                for name, size, axis in zip(names, outputs, rows_axes, strict=True)
            ]
        return self._apply("linear", [x], weights, {"bias": bias})

    def rms_norm(self, x: Value, name: str, *, eps: float, offset: float = 0.0, width: int | None = None) -> Value:
        """``x / sqrt(mean(x^2) + eps) * (offset + w)``; ``width`` normalises each run of that many elements."""
        size = width or self._width("rms_norm", x)
        weight = self._weight(name, (size,), ("head_dim" if width else "embed",))
        return self._one("rms_norm", [x], [weight], {"eps": float(eps), "offset": float(offset)})

    def layer_norm(self, x: Value, name: str, *, eps: float, bias: bool = True) -> Value:
        """``(x - mean) / sqrt(var + eps) * w (+ b)`` over the last dimension."""
        width = self._width("layer_norm", x)
        weights = [self._weight(name, (width,), ("embed",))]
        if bias:
            weights.append(self._weight(name, (width,), ("embed",), suffix="bias"))
        return self._one("layer_norm", [x], weights, {"eps": float(eps), "bias": bias})

    def rope(self, q: Value, k: Value, spec: RopeSpec) -> tuple[Value, Value]:
        """Rotate the heads of q and k by the step's positions."""
        rotated = self._apply("rope", [q, k, self.positions], [], spec.to_attrs())
        return rotated[0], rotated[1]

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        layer: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: str | None = None,
        causal: bool = True,
    ) -> Value:
        """Write k and v of the step's tokens to the paged cache, then attend: [T, heads * head_dim].

        ``layer`` numbers the attention layers from 0, in order. ``window`` counts the positions a query sees,
        itself included. ``sinks`` names a weight [heads] of logits that take part in the softmax with no value.
        Without ``causal`` a query also sees the positions after its own that its row has so far.
        """
        if layer != len(self._kv):
            raise self._error("attention", f"layers are numbered in order: {layer} came where {len(self._kv)} was due")
        self._kv.append((kv_heads, head_dim, window))
        weights = [self._weight(sinks, (heads,), ("heads",), suffix="")] if sinks else []
        step = [Value(n, self._types[n]) for n in ("query_starts", "context_lens", "slots", "block_tables")]
        attrs = {
            "layer": layer,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "scale": float(scale),
            "window": window,
            "softcap": None if softcap is None else float(softcap),
            "causal": causal,
        }
        return self._one("attention", [q, k, v, *step], weights, attrs)

    def activation(self, x: Value, kind: str) -> Value:
        """``kind`` of x: silu, gelu (exact), gelu_tanh or relu."""
        return self._one("activation", [x], [], {"kind": kind})

    def gated_activation(self, gate: Value, up: Value, kind: str) -> Value:
        """``activation(gate) * up``."""
        return self._one("gated_activation", [gate, up], [], {"kind": kind})

    def add(self, a: Value, b: Value) -> Value:
        """``a + b``, equal shapes."""
        return self._one("add", [a, b])

    def mul(self, a: Value, b: Value) -> Value:
        """``a * b``, equal shapes."""
        return self._one("mul", [a, b])

    def scale(self, x: Value, factor: float) -> Value:
        """``x * factor``."""
        return self._one("scale", [x], [], {"factor": float(factor)})

    def softcap(self, x: Value, cap: float) -> Value:
        """``cap * tanh(x / cap)``."""
        return self._one("softcap", [x], [], {"cap": float(cap)})

    def take_rows(self, x: Value) -> Value:
        """The tokens whose logits the step wants: [S, width]."""
        return self._one("take_rows", [x, Value("sample_rows", self._types["sample_rows"])])

    def pool(self, x: Value, kind: str) -> Value:
        """One vector per row: its tokens' mean, or its first or last token: [R, width]."""
        starts = Value("query_starts", self._types["query_starts"])
        return self._one("pool", [x, starts], [], {"kind": kind})

    def output(self, name: str, value: Value) -> None:
        """Make ``value`` a result of the step. Raises GraphError if another value has the name."""
        if name in self._outputs:
            raise GraphError(f"{self._name}: output {name} is given twice")
        self._outputs[name] = value.name

    def build(self) -> Graph:
        """The finished graph. Raises GraphError if nothing was made an output."""
        if not self._outputs:
            raise GraphError(f"{self._name}: the graph has no output")
        try:
            kv = assign_kv_groups(self._kv)
        except GraphError as error:
            raise GraphError(f"{self._name}: {error}") from None
        inputs = step_inputs(groups=max((layer.group for layer in kv), default=-1) + 1)
        return Graph(
            name=self._name,
            dtype=self._dtype,
            inputs=inputs,
            weights=dict(self._weights),
            nodes=tuple(self._nodes),
            types={**self._types, **inputs},
            outputs=dict(self._outputs),
            kv=kv,
        )

    # -- plumbing -------------------------------------------------------------------------------

    def _weight(self, name: str, shape: tuple[int, ...], axes: tuple[AxisName, ...], suffix: str = "weight") -> str:
        full = ".".join([*self._scopes, name, *([suffix] if suffix else [])])
        named = tuple(Axis(a, n) if isinstance(a, str) else a for a, n in zip(axes, shape, strict=True))
        spec = WeightSpec(shape, named, self._format_of(full))
        known = self._weights.setdefault(full, spec)
        if known.shape != shape:
            raise GraphError(f"{self._name}: weight {full} is used with shape {shape} and with {known.shape}")
        return full

    def _width(self, op: str, x: Value) -> int:
        try:
            return x.type.width
        except GraphError as error:
            raise self._error(op, str(error)) from None

    def _error(self, op: str, message: str) -> GraphError:
        """An error that says where in the model it is."""
        return GraphError(f"{self._name}: {op} in {'.'.join(self._scopes) or 'the top scope'}: {message}")

    def _one(
        self, op: str, inputs: Sequence[Value], weights: Sequence[str] = (), attrs: Mapping[str, object] | None = None
    ) -> Value:
        (value,) = self._apply(op, inputs, weights, attrs)
        return value

    def _apply(
        self, op: str, inputs: Sequence[Value], weights: Sequence[str] = (), attrs: Mapping[str, object] | None = None
    ) -> tuple[Value, ...]:
        scope = ".".join(self._scopes)
        try:
            frozen = {k: freeze(v) for k, v in sorted((attrs or {}).items()) if v is not None}
            types = OPS[op].infer([v.type for v in inputs], [self._weights[w] for w in weights], frozen)
        except GraphError as error:
            raise self._error(op, str(error)) from None
        outputs = tuple(Value(f"v{len(self._types) + i}", t) for i, t in enumerate(types))
        for value in outputs:
            self._types[value.name] = value.type
        self._nodes.append(
            Node(
                op,
                tuple(v.name for v in inputs),
                tuple(weights),
                frozen,
                tuple(v.name for v in outputs),
                scope,
                self._layer,
            )
        )
        return outputs
