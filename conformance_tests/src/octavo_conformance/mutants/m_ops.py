"""Faults in norms and rope."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from octavo.graph import Graph, Node
from octavo.platform import KVLayout, StepInput
from octavo_conformance.judge import floats
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.m_attention import Edited
from octavo_conformance.mutants.wrapped import Wrapped


def with_attrs(node: Node, op: str, **attrs: Any) -> Node:
    """A node of ``op`` with other attributes; any other as it is."""
    return replace(node, attrs={**node.attrs, **attrs}) if node.op == op else node


@mutant("M18.pairs", "rope pairs neighbours where it should pair halves, and the reverse",
        killed_by=("rope.neox", "rope.gptj_interleaved", "rope.partial_dim"))  # fmt: skip
class WrongPairs(Edited):
    """The attribute is turned round."""

    def node(self, node: Node) -> Node:
        return with_attrs(node, "rope", interleaved=not node.attrs.get("interleaved"))


@mutant(
    "M18.positions",
    "positions are kept as bf16",
    killed_by=("rope.neox", "rope.gptj_interleaved", "rope.partial_dim", "rope.scaled", "rope.offset_gather"),
)
class CoarsePositions(Wrapped):
    """Which is right up to 256."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        return replace(step, positions=floats.rounded(step.positions.astype(np.float32), "bf16").astype(np.int32))


@mutant("M18.scaling", "rope is not scaled", killed_by=("rope.scaled",))
class Unscaled(Edited):
    """The attribute is not read."""

    def node(self, node: Node) -> Node:
        if node.op != "rope":
            return node
        return replace(node, attrs={name: value for name, value in node.attrs.items() if name != "scaling"})


@mutant("M19.eps", "eps is added outside the root", killed_by=("norm.rms", "norm.add_rms_fused"))
class EpsOutside(Edited):
    """Within, it is then as if it were its square."""

    def node(self, node: Node) -> Node:
        return with_attrs(node, "rms_norm", eps=float(node.attrs.get("eps", 0.0)) ** 2)  # type: ignore[arg-type]


@mutant("M19.offset", "the offset of a norm is left out", killed_by=("norm.gemma_plus1",))
class NoOffset(Edited):
    """The attribute is not read."""

    def node(self, node: Node) -> Node:
        return with_attrs(node, "rms_norm", offset=0.0)


@mutant("M19.residual", "beside a norm the sum comes out without its second half", killed_by=("norm.add_rms_fused",))
class HalfResidual(Wrapped):
    """Who reads the sum gets the first of what was added."""

    def graph(self, graph: Graph) -> Graph:
        instead = {n.outputs[1]: n.inputs[0] for n in graph.nodes if n.op == "rms_norm" and len(n.outputs) == 2}
        return replace(graph, nodes=tuple(
            replace(n, inputs=tuple(instead.get(value, value) for value in n.inputs)) for n in graph.nodes
        ))  # fmt: skip
