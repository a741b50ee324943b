"""Running a program on the chip: the only code that sees what device memory holds.

A page is what one block holds in one layer tensor, keys and values. Pages are never written: a step makes new ones
for the blocks it touches, and the cache becomes another mapping of blocks to pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import OPS, Call, KVLayerSpec, Node
from octavo_fakechip.compiler import Program
from octavo_fakechip.habits import BLOCK
from octavo_fakechip.memory import DeviceBuffer, Memory

Array = npt.NDArray[Any]
Pages = Mapping[tuple[int, int], DeviceBuffer]
"""(layer tensor, block) to page, float32 [2, BLOCK, kv_heads, head_dim]; a block that nobody wrote has none."""

_SLOTS, _TABLES = 5, 6  # among the inputs of attention


def copy_blocks(pages: Pages, copies: Array) -> Pages:
    """The pages after (source, destination) copies, one after the other, in every layer tensor."""
    copied = dict(pages)
    tensors = {tensor for tensor, _ in pages}
    for source, destination in copies.tolist():
        for tensor in tensors:
            page = copied.get((tensor, source))
            if page is not None:
                copied[tensor, destination] = page
            else:
                copied.pop((tensor, destination), None)
    return copied


def empty_page(heads: int, dim: int) -> Array:
    """A page that nobody wrote: whoever lets it through computes NaN."""
    return np.full((2, BLOCK, heads, dim), np.nan, np.float32)


def run(
    program: Program,
    memory: Memory,
    weights: Mapping[str, DeviceBuffer],
    inputs: Mapping[str, DeviceBuffer],
    pages: Pages,
) -> tuple[DeviceBuffer, Pages]:
    """The program's logits and the pages after it; ``pages`` themselves stay as they are."""
    graph = program.graph
    values: dict[str, Array] = {name: memory.download(inputs[name], np.int32) for name in graph.inputs}
    last = {value: at for at, node in enumerate(graph.nodes) for value in (*node.inputs, *node.outputs)}
    kept = {*graph.outputs.values(), *graph.inputs}
    for at, node in enumerate(graph.nodes):
        operands = [values[name] for name in node.inputs]
        parameters = [memory.download(weights[name]) for name in node.weights]
        if node.op == "attention":
            outputs, pages = _attention(node, graph.kv, operands, parameters, pages, memory)
        else:
            outputs = OPS[node.op].reference(Call(operands, parameters, node.attrs))
        values.update(zip(node.outputs, outputs, strict=True))
        for name in {*node.inputs, *node.outputs} - kept:
            if last[name] == at:
                del values[name]
    return memory.upload(values[graph.outputs["logits"]].astype(np.float32, copy=False)), pages


@dataclass
class _Gathered:
    """The pages of one call, side by side, as the op's reference takes a cache (`octavo.graph.ops.KVCache`)."""

    spec: KVLayerSpec
    keys: Array
    values: Array
    block_size: int = BLOCK

    def layer(self, index: int) -> tuple[KVLayerSpec, Array, Array]:
        """The one layer there is."""
        return self.spec, self.keys, self.values


def _attention(
    node: Node,
    layers: tuple[KVLayerSpec, ...],
    operands: list[Array],
    weights: list[Array],
    pages: Pages,
    memory: Memory,
) -> tuple[tuple[Array, ...], Pages]:
    """Attention over the pages that the step names, and the pages with those it wrote replaced."""
    layer = layers[int(node.attrs["layer"])]  # type: ignore[arg-type]  # an integer, by the op's schema
    slots, tables = operands[_SLOTS][layer.group], operands[_TABLES][layer.group]
    written = np.unique(slots[slots >= 0] // BLOCK)
    named = np.union1d(tables, written)
    gathered = np.stack([_page(pages, layer, block, memory) for block in named.tolist()], axis=1)
    local = _Gathered(replace(layer, group=0), gathered[0], gathered[1])
    placed = np.where(slots >= 0, np.searchsorted(named, slots // BLOCK) * BLOCK + slots % BLOCK, -1)
    arguments = list(operands)
    arguments[_SLOTS], arguments[_TABLES] = placed[None], np.searchsorted(named, tables)[None]
    outputs = OPS["attention"].reference(Call(arguments, weights, node.attrs, kv=local))
    fresh = {
        (layer.slot, block): memory.upload(gathered[:, np.searchsorted(named, block)]) for block in written.tolist()
    }
    return outputs, {**pages, **fresh}


def _page(pages: Pages, layer: KVLayerSpec, block: int, memory: Memory) -> Array:
    page = pages.get((layer.slot, block))
    return empty_page(layer.kv_heads, layer.head_dim) if page is None else memory.download(page)
