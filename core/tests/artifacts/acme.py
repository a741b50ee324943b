"""A platform whose compiler is worth a store: a program for each bucket, for either of two kinds of device.

Compiling needs no device. Running is the reference device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo import platform as api
from octavo.graph import Graph
from octavo.platform.discovery import Found, Registry
from octavo.quant import WeightTensor

CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}
KINDS = ("A1", "A2")


class AcmePlatform:
    """``here`` is whether a device, of the first kind, is in this machine."""

    info = api.PlatformInfo("acme", "Acme", "1.0", "accelerator", CONTRACT)

    def __init__(self, *, here: bool = True, targets: tuple[str, ...] = KINDS, compiler: str = "acme-cc 1") -> None:
        self.here = here
        self.compiler = compiler
        self.can = replace(api.REFERENCE_CAPABILITIES, targets=targets)
        self.compiled: list[api.Bucket] = []

    def probe(self) -> api.Probe:
        return api.Probe(self.here, "one A1" if self.here else "no device")

    def capabilities(self) -> api.Capabilities:
        return self.can

    def negotiate(self, request: api.PlanRequest) -> api.Plan | api.Unsupported:
        plan = api.negotiate_by_declaration(request, "acme", self.can, api.Limits())
        assert isinstance(plan, api.Plan)
        rows = plan.max_num_seqs
        policy = api.BucketPolicy(tokens=api.powers_up_to(plan.max_num_batched_tokens, start=64), rows=(rows,))
        return replace(plan, limits=api.Limits(buckets=replace(policy, samples=(rows,))))

    def open(self, rank: api.Rank) -> api.Device:
        assert rank.target is not None or self.here, "there is no device"
        return AcmeDevice(self, rank)


class AcmeDevice(api.ReferenceDevice):
    def __init__(self, platform: AcmePlatform, rank: api.Rank) -> None:
        super().__init__(lambda: api.MemoryReport(1 << 30, 1 << 30))
        self.platform, self.rank = platform, rank

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: api.Progress, files: Sequence[Path] = ()
    ) -> Any:
        """Programs do not depend on weights; ahead of time nothing is read."""
        return {} if self.rank.target is not None else super().load(graph, weights, progress, files)

    def compile(self, graph: Graph, bucket: api.Bucket, weights: Any, layout: api.KVLayout) -> Any:
        key = api.ArtifactKey.for_graph(
            graph,
            kind="program",
            platform="acme",
            device=self.rank.target or KINDS[0],
            compiler=self.platform.compiler,
            bucket=bucket,
            layout=layout,
            mesh=self.rank.mesh,
            abi="runtime 1",
        )

        def build(writer: api.ArtifactWriter) -> None:
            self.platform.compiled.append(bucket)
            writer.add("code", np.frombuffer(repr(bucket).encode(), np.uint8))

        program = self.rank.artifacts.open(key, build).arrays["code"]
        assert program.tobytes() == repr(bucket).encode()
        return None if self.rank.target is not None else super().compile(graph, bucket, weights, layout)


def registry(platform: AcmePlatform) -> Registry:
    """What discovery would find if it were installed alone."""
    return Registry((Found("acme", "octavo-acme 1.0", platform.probe(), platform, "accelerator"),), ())
