"""One op as a model: how a check drives an op through a contract that runs whole graphs.

The rows of embedding tables *are* the op's inputs: token i brings row i of each. The result leaves through an output
matrix that is the identity, so the logits are the op's result: a sum of one term and of zeros, which every float
type keeps exactly::

    p = Probe(t, "norm")
    x = p.rows("x", values)  # [N, W]
    y = p.build.rms_norm(x, "norm", eps=1e-6)
    p.weight("norm.weight", weight)
    model = p.read(y)  # a Model to give to Target.play

What is not finite spreads over its row on the way out (0 * inf is NaN): checks of infinities and NaNs look at whole
rows, or read the KV cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.graph import Builder, Graph, Value, fuse
from octavo.quant import F32, WeightTensor, format_named
from octavo_conformance.judge import floats


class Stored(Protocol):
    """What a probe needs to know of a target."""

    dtype: str

    @property
    def plain_format(self) -> str:
        """The format for tables and for the output."""


@dataclass(frozen=True)
class Model:
    """A fused graph and all its weights as stored."""

    graph: Graph
    weights: Mapping[str, WeightTensor]

    @property
    def groups(self) -> int:
        """KV groups."""
        return len(self.graph.kv_windows)


def stored(values: npt.ArrayLike, format: str) -> WeightTensor:
    """An array in a plain format (f32, f16, bf16), rounded to it."""
    x = np.ascontiguousarray(values, np.float32)
    if format == "f32":
        raw = x.astype("<f4")
    elif format == "f16":
        with np.errstate(over="ignore"):
            raw = x.astype("<f2")
    elif format == "bf16":
        raw = floats.bf16_bits(x).astype("<u2")
    else:
        raise ValueError(f"{format} is no plain format; make the bytes of a quantized weight yourself")
    return WeightTensor(format_named(format), x.shape, raw.view(np.uint8).reshape(*x.shape[:-1], -1))


class Probe:
    """Collects a graph and its weights; see the module."""

    def __init__(self, target: Stored, name: str = "probe") -> None:
        self._target = target
        self._formats: dict[str, str] = {}
        self._weights: dict[str, WeightTensor] = {}
        self.build = Builder(name, target.dtype, lambda weight: self._formats.get(weight, target.plain_format))

    def rows(self, name: str, values: npt.ArrayLike) -> Value:
        """A value [T, W] whose row for token i is ``values[i]``, which must be numbers that the platform can store
        (`Target.stored`).
        """
        table = np.asarray(values, np.float32)
        self.weight(f"{name}.weight", table)
        return self.build.embed(name, vocab=table.shape[0], width=table.shape[1])

    def weight(self, name: str, values: npt.ArrayLike | WeightTensor, format: str | None = None) -> None:
        """Give a weight by its full name, before or after the node that reads it; vectors (one dimension) go as f32
        unless ``format`` says otherwise. A quantized weight comes as WeightTensor and needs to be given before its
        node.
        """
        if isinstance(values, WeightTensor):
            tensor = values
        else:
            array = np.asarray(values, np.float32)
            tensor = stored(array, format or self._target.plain_format)
        self._formats[name] = tensor.format.name
        self._weights[name] = tensor

    def read(self, value: Value, columns: npt.ArrayLike | None = None) -> Model:
        """The model whose logits are ``value``, or some of its columns, at every token asked for."""
        picked = self.build.take_rows(value)
        width = value.type.width
        chosen = np.arange(width) if columns is None else np.asarray(columns)
        head = np.zeros((len(chosen), width), np.float32)
        head[np.arange(len(chosen)), chosen] = 1
        return self.logits(picked, head)

    def logits(self, picked: Value, head: npt.ArrayLike | WeightTensor) -> Model:
        """The model whose logits are ``head`` times ``picked``, which `Builder.take_rows` made."""
        self.weight("head.weight", head)
        shape = self._weights["head.weight"].shape
        self.build.output("logits", self.build.linear(picked, "head", shape[0]))
        return self.model()

    def model(self) -> Model:
        """The finished model, fused as core does it. Raises ValueError for a weight that was not given."""
        graph = fuse(self.build.build())
        lacking = set(graph.weights) - set(self._weights)
        if lacking:
            raise ValueError(f"the probe has no values for {', '.join(sorted(lacking))}")
        return Model(graph, {name: self._weights[name] for name in graph.weights})


__all__ = ["F32", "Model", "Probe", "stored"]
