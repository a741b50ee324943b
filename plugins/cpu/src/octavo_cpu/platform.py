"""The platform: the host's processors and memory, driven by the native runtime."""

from __future__ import annotations

import platform as host
from dataclasses import replace
from importlib import metadata

from octavo.platform import (
    Capabilities,
    Device,
    DeviceInfo,
    Limits,
    ModelFacts,
    Plan,
    PlanRequest,
    PlatformInfo,
    PlatformUnavailable,
    Probe,
    Rank,
    Settings,
    Unsupported,
    host_memory,
    negotiate_by_declaration,
)
from octavo_cpu.binding import FORMATS, load
from octavo_cpu.device import CpuDevice
from octavo_cpu.lower import BF16, INT8, NONE, feed_kind
from octavo_cpu.refinement import finer
from octavo_cpu.threads import choose_threads
from octavo_cpu.weights import TARGET

CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0", "bench": "1.0"}

CAPABILITIES = Capabilities(
    ops=frozenset(
        {
            "map_ids",
            "embed",
            "linear",
            "rms_norm",
            "layer_norm",
            "rope",
            "attention",
            "gated_activation",
            "activation",
            "add",
            "mul",
            "scale",
            "softcap",
            "take_rows",
            "pool",
        }
    ),
    weight_formats=frozenset(FORMATS),
    dtypes=("f32",),
    kv_dtypes=("bf16", "int8", "f32", "f16"),
    block_sizes=(16, 32, 64, 128),
    head_dims=tuple(range(16, 513, 16)),
    attention=frozenset({"window", "softcap", "sinks", "bidirectional"}),
    linear_inputs={
        name: {BF16: "bf16", INT8: "int8x32"}[kind] for name in FORMATS if (kind := feed_kind(name)) != NONE
    },
    masks=True,
    targets=(TARGET,),
)

_ROWS = 64

DEFAULTS = Settings(max_num_seqs=_ROWS, memory_utilization=0.5)
"""What a machine that has other work to do is asked for: half of its memory, and rows that its cores keep up with."""

_STEP_TOKENS = 256
"""Tokens of a step: a native step takes them in pieces of so many, so that more in one step gain nothing, and only keep
the rows that decode waiting (docs/performance.md has the measurement)."""


def _kv_dtype(model: ModelFacts) -> str:
    """Eight bits where the weights have no more (decision 0019): a step with many rows waits for keys and values.

    Not where finer activations were asked for: the cache would spoil what they bring.
    """
    quantized = any(feed_kind(name) == INT8 for name in model.weight_formats)
    return "int8" if quantized and not finer() and not model.whole_prompts else "bf16"


class CpuPlatform:
    """Meets `octavo.platform.Platform`."""

    @property
    def info(self) -> PlatformInfo:
        """See `Platform.info`."""
        return PlatformInfo("cpu", "Octavo", metadata.version("octavo-cpu"), "host", CONTRACT)

    def probe(self) -> Probe:
        """Available where the native library is; says which kernels it would run on how many cores."""
        try:
            kernels = load().octavo_kernels(b"").decode()
        except PlatformUnavailable as error:
            return Probe(False, str(error))
        name = f"{host.machine()}, {choose_threads()}, {kernels} kernels"
        return Probe(True, name, (DeviceInfo(name, host_memory().total),))

    def capabilities(self) -> Capabilities:
        """See `Platform.capabilities`."""
        return CAPABILITIES

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """See `Platform.negotiate`."""
        rows = request.settings.max_num_seqs or _ROWS
        # As many again as there may be decodes, lest prompts be left with hardly a token a step.
        defaults = replace(
            DEFAULTS, max_num_batched_tokens=max(_STEP_TOKENS, 2 * rows), kv_cache_dtype=_kv_dtype(request.model)
        )
        return negotiate_by_declaration(request, "cpu", CAPABILITIES, Limits(), defaults)

    def open(self, rank: Rank) -> Device:
        """See `Platform.open`. ConfigError for more threads than there are cores. Packing, all that is done ahead of
        time, takes the host's processors as well.
        """
        return CpuDevice(load(), host_memory, choose_threads(rank.threads), artifacts=rank.artifacts)
