"""The compiler: a graph and a bucket become a program, a piece of JSON that says all the chip needs to know.

A program holds no weights, and no name of a file or a machine: its content is its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from octavo.errors import UnsupportedFeature
from octavo.graph import Graph, from_json, specialise, to_json
from octavo.platform import ArtifactKey, ArtifactStore, ArtifactWriter, Bucket, KVLayout, Rank
from octavo_fakechip.habits import BLOCK, NAME, OPS, TARGET, padded
from octavo_fakechip.memory import size_on_chip

FORMAT = f"{NAME} program 1"


@dataclass(frozen=True)
class Program:
    """A compiled program, as bytes and as what they say. Made by `compile_program` or read back by `from_bytes`."""

    data: bytes
    graph: Graph
    bucket: Bucket

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """The program that `compile_program` wrote. Raises ValueError if these are no bytes of one."""
        raw = json.loads(data)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ValueError(f"these bytes are no {FORMAT}")
        return cls(data, from_json(json.dumps(raw["graph"])), Bucket(*raw["bucket"]))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the program, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """The shape of every input; it takes no other."""
        return {name: tensor.shape for name, tensor in self.graph.inputs.items()}

    @property
    def scratch(self) -> int:
        """Bytes that a run needs: every value of the graph, and new pages of the cache beside the old ones."""
        values = sum(size_on_chip(tuple(map(int, t.shape))) for t in self.graph.types.values())
        tokens, rows, *_ = self.bucket
        touched = (rows or 0) + -(-(tokens or 0) // BLOCK)
        pages = sum(2 * BLOCK * layer.kv_heads * padded(layer.head_dim) * 4 for layer in self.graph.kv)
        return values + touched * pages


def compile_program(graph: Graph, bucket: Bucket) -> Program:
    """A program of ``graph`` for one bucket; the same bytes wherever it is compiled. Raises UnsupportedFeature."""
    sizes = {symbol: size for symbol, size in zip("TRSB", bucket, strict=True) if size is not None}
    if len(sizes) < len(bucket):
        raise UnsupportedFeature(f"{NAME}: {bucket} leaves a size open", feature="dynamic shapes")
    if graph.dtype != "f32":
        raise UnsupportedFeature(f"{NAME}: it computes in f32, not {graph.dtype}", feature=f"dtype {graph.dtype}")
    for node in graph.nodes:
        what = None if node.op in OPS else f"op {node.op}"
        if node.op == "attention" and node.attrs.get("causal") is False:
            what = "bidirectional attention"
        if what is not None:
            where = f"{node.scope or '(top)'} -> {', '.join(node.outputs)}"
            raise UnsupportedFeature(f"{NAME}: {what} of node {where} is not supported", feature=what)
    fixed = specialise(graph, sizes)
    content = {"format": FORMAT, "bucket": list(bucket), "graph": json.loads(to_json(fixed))}
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return Program.from_bytes(data)  # through the bytes, so that nothing but them is ever run


class Compiler:
    """Makes programs, or finds them in the rank's store.

    ``compiled`` is called for each that had to be made, before that begins.
    """

    def __init__(self, rank: Rank, version: str, compiled: Callable[[], None]) -> None:
        self._store: ArtifactStore = rank.artifacts
        self._mesh = rank.mesh
        self._version = version
        self._compiled = compiled
        self._keys: dict[int, tuple[Graph, ArtifactKey]] = {}

    def program(self, graph: Graph, bucket: Bucket, layout: KVLayout) -> Program:
        """The program of a graph for one bucket. Raises UnsupportedFeature, and what the store raises."""

        def build(writer: ArtifactWriter) -> None:
            self._compiled()
            program = compile_program(graph, bucket)
            writer.add("program", np.frombuffer(program.data, np.uint8))
            writer.note("scratch", str(program.scratch))

        key = replace(self._key(graph), bucket=bucket, layout=layout)
        return Program.from_bytes(self._store.open(key, build).arrays["program"].tobytes())

    def _key(self, graph: Graph) -> ArtifactKey:
        """What the programs of all buckets share. The graph is kept, so that its id stays its own."""
        if id(graph) not in self._keys:
            key = ArtifactKey.for_graph(
                graph,
                kind="program",
                platform=NAME,
                device=TARGET,
                compiler=f"{NAME} {self._version}",
                mesh=self._mesh,
                abi=FORMAT,
            )
            self._keys[id(graph)] = (graph, key)
        return self._keys[id(graph)][1]
