"""What a platform says about itself before any device is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

CONTRACT: Mapping[str, str] = MappingProxyType({"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"})
"""Version of each facet of the contract, MAJOR.MINOR. A minor only adds; a plugin of another major is refused."""


@dataclass(frozen=True)
class PlatformInfo:
    """Who a platform is. ``kind`` is ``host`` for the machine's own processors, ``accelerator`` for anything attached to it.

    ``contract`` names the facet versions that the plugin was written for.
    """

    name: str
    vendor: str
    version: str
    kind: Literal["host", "accelerator"]
    contract: Mapping[str, str] = field(default_factory=lambda: CONTRACT)


@dataclass(frozen=True)
class DeviceInfo:
    """One device that a probe saw. ``memory_bytes`` is 0 where it is not known before opening."""

    name: str
    memory_bytes: int = 0


@dataclass(frozen=True)
class Probe:
    """A platform's verdict on this machine, with the reason for people: what was found, or what is missing."""

    available: bool
    reason: str
    devices: tuple[DeviceInfo, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do. Defaults are conservative: what is not declared is refused at start-up.

    What is declared is proven by the conformance suite, so declare no more than works.
    """

    ops: frozenset[str] = frozenset()
    """Ops of the dialect (`octavo.graph.OPS`) that it runs."""
    weight_formats: frozenset[str] = frozenset({"f32"})
    """Weight formats (`octavo.quant.FORMATS`) it takes as they are stored."""
    dtypes: tuple[str, ...] = ("f32",)
    """Activation dtypes, the preferred one first."""
    kv_dtypes: tuple[str, ...] = ("f32",)
    """Element types of the KV cache, the preferred one first."""
    block_sizes: tuple[int, ...] = (16,)
    """Tokens per KV block it can serve, the preferred one first."""
    head_dims: tuple[int, ...] | None = None
    """Head sizes its attention takes; ``None``: any."""
    attention: frozenset[str] = frozenset()
    """Of ``window``, ``softcap``, ``sinks``, ``bidirectional``: what its attention can do beyond causal."""
    sampling: bool = False
    """Whether its executables sample within the step; otherwise they bring logits and the host samples."""
    ranks: int = 1
    """Most devices one model may span."""
