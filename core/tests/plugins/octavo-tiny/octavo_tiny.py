"""A platform for Tiny Chip: an accelerator that runs static shapes, and prompts apart from decodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo import platform as api
from octavo.graph import Graph, specialise

NAME = "tinychip"
CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}
MEMORY = 256 << 20  # bytes on the chip

CAN = api.Capabilities(
    ops=frozenset({"embed", "linear", "rms_norm", "rope", "attention", "gated_activation", "add", "take_rows"}),
    weight_formats=api.REFERENCE_CAPABILITIES.weight_formats,
    block_sizes=(32,),
)
LIMITS = api.Limits(prefill_xor_decode=True, max_prefill_rows=2, chunk_multiple=16, max_volume=1024)
DEFAULTS = api.Settings(max_num_seqs=8, max_num_batched_tokens=64)


class TinyPlatform:
    """What Octavo asks before it opens the chip; nothing here touches it."""

    info = api.PlatformInfo(NAME, vendor="Tiny", version="0.3.0", kind="accelerator", contract=CONTRACT)

    def probe(self) -> api.Probe:
        return api.Probe(True, "one Tiny Chip", (api.DeviceInfo("Tiny Chip", MEMORY),))

    def capabilities(self) -> api.Capabilities:
        return CAN

    def negotiate(self, request: api.PlanRequest) -> api.Plan | api.Unsupported:
        plan = api.negotiate_by_declaration(request, NAME, CAN, LIMITS, DEFAULTS)
        if isinstance(plan, api.Unsupported):
            return plan
        buckets = api.BucketPolicy(
            tokens=api.powers_up_to(plan.max_num_batched_tokens, start=8),
            rows=(plan.max_num_seqs,),
            samples=(plan.max_num_seqs,),
            blocks=api.powers_up_to(-(-plan.max_model_len // plan.block_size)),
        )
        return replace(plan, limits=replace(LIMITS, buckets=buckets))

    def open(self, rank: api.Rank) -> api.Device:
        return TinyDevice(lambda: api.MemoryReport(MEMORY, MEMORY))


class TinyDevice(api.ReferenceDevice):
    """The chip. So far the reference device loads the weights and keeps the cache, on the host."""

    def compile(self, graph: Graph, bucket: api.Bucket, weights: Any, layout: api.KVLayout) -> TinyExecutable:
        sizes = {symbol: size for symbol, size in zip("TRSB", bucket, strict=True) if size is not None}
        if len(sizes) < len(bucket):
            raise api.UnsupportedFeature(f"{NAME}: {bucket} leaves a size open", feature="dynamic shapes")
        return TinyExecutable(specialise(graph, sizes), weights)


class TinyExecutable(api.ReferenceExecutable):
    """A program of fixed shapes. So far numpy runs it; that the shapes are right is checked as the chip would."""

    def __init__(self, graph: Graph, weights: Any) -> None:
        super().__init__(graph, weights)
        self.shapes = {name: tensor.shape for name, tensor in graph.inputs.items()}

    def submit(self, step: api.StepInput, kv: api.ReferenceKVStore) -> api.StepOutput:
        shapes = {name: array.shape for name, array in step.graph_inputs().items()}
        if shapes != self.shapes:
            raise RuntimeError(f"{NAME}: the step has the shapes {shapes}, the program {self.shapes}")
        return super().submit(step, kv)


@api.hookimpl
def octavo_platforms() -> list[api.Platform]:
    return [TinyPlatform()]
