"""What a platform says about itself before any device is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from octavo.errors import PlatformError

CONTRACT: Mapping[str, str] = MappingProxyType({
    "platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0", "bench": "1.0",
    "faults": "1.0",
})  # fmt: skip
"""Version of each facet of the contract, MAJOR.MINOR. A minor only adds; see `refuse_contract`."""

BASE_FACETS = ("platform", "step", "kv", "sampling")
"""The facets that every platform meets, and therefore names. A facet that comes later is named by those who use it."""

DTYPES = ("f32", "bf16", "f16")
"""Activation dtypes that graphs have."""
KV_DTYPES = (*DTYPES, "int8")
"""Element types that a KV cache may have."""
LINEAR_INPUTS = (*DTYPES, "int8x32")
"""As what a linear may store its input; ``int8x32``: codes of -127 … 127 with one float32 scale for every 32
elements."""
ATTENTION_FEATURES = ("window", "softcap", "sinks", "bidirectional")
"""What a model's attention may ask for beyond causal attention; see the ``attention`` op of `octavo.graph.OPS`."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_VERSION = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class PlatformInfo:
    """Who a platform is. Raises PlatformError for a name that could not be typed or a kind that there is not.

    ``name`` is what people give to ``--platform``: lower-case letters, digits, ``-`` and ``_``. Give the entry point
    the same name: it stands for the platform where the plugin cannot be imported. ``version`` is the plugin's own.
    ``kind`` is ``host`` for the machine's own processors, ``accelerator`` for anything attached to it: the one
    available accelerator is preferred to the host. ``reference`` is for checking others, and used only where it is
    named. ``contract`` has, for each facet of `CONTRACT` that the plugin uses, the lowest version it works with. Write
    the numbers out; copied from `CONTRACT` they would always claim to fit.
    """

    name: str
    vendor: str
    version: str
    kind: Literal["host", "accelerator", "reference"]
    contract: Mapping[str, str]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise PlatformError(
                f"a platform cannot be called {self.name!r}; use lower-case letters, digits, - and _, "
                "with a letter or digit first"
            )
        if self.kind not in ("host", "accelerator", "reference"):
            raise PlatformError(f"platform {self.name}: kind must be host, accelerator or reference, not {self.kind!r}")


def refuse_contract(contract: Mapping[str, str]) -> str | None:
    """A sentence if a plugin of these contract versions cannot be used with this core, else ``None``.

    It can if each facet it names is here with the same major and no lower minor, and it names all of `BASE_FACETS`.
    """
    missing = [facet for facet in BASE_FACETS if facet not in contract]
    if missing:
        return f"its info does not say which version of the {', '.join(missing)} contract it was written for"
    for facet, version in contract.items():
        if not _VERSION.fullmatch(version):
            return f"its {facet} contract version is {version!r}, which is not MAJOR.MINOR"
        written = f"it was written for version {version} of the {facet} contract"
        ours = CONTRACT.get(facet)
        if ours is None:
            return f"{written}, which this octavo does not have; upgrade octavo"
        (major, minor), (our_major, our_minor) = (tuple(map(int, v.split("."))) for v in (version, ours))
        if major < our_major:
            return f"{written} and this octavo has {ours}; upgrade the plugin"
        if (major, minor) > (our_major, our_minor):
            return f"{written} and this octavo has {ours}; upgrade octavo"
    return None


@dataclass(frozen=True)
class DeviceInfo:
    """One device that a probe saw. ``memory_bytes`` is 0 where it is not known before opening."""

    name: str
    memory_bytes: int = 0


@dataclass(frozen=True)
class Probe:
    """A platform's verdict on this machine.

    ``reason`` is shown to people after the platform's name: what was found ("2 Acme One, driver 4.1"), or what is
    missing and how to get it ("the driver is not loaded; modprobe acme"). ``devices`` lists what was found;
    `Rank.device` is an index into it.
    """

    available: bool
    reason: str
    devices: tuple[DeviceInfo, ...] = ()


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do. Defaults are conservative: what is not declared is refused at start-up.

    What is declared is proven by the conformance suite, so declare no more than works. Raises PlatformError if a list
    is empty or names something that core does not know.
    """

    ops: frozenset[str] = frozenset()
    """Ops of the dialect (`octavo.graph.OPS`) that it runs, with all their optional inputs and attributes but those
    in ``attention``. `octavo.graph.fuse` makes no op that an unfused graph lacks, but it does use their optional
    inputs."""
    weight_formats: frozenset[str] = frozenset({"f32"})
    """Weight formats (`octavo.quant.FORMATS`) that it can load. Loading may dequantise or repack."""
    dtypes: tuple[str, ...] = ("f32",)
    """Activation dtypes, of `DTYPES`, the preferred one first."""
    kv_dtypes: tuple[str, ...] = ("f32",)
    """Element types of the KV cache, of `KV_DTYPES`, the preferred one first."""
    block_sizes: tuple[int, ...] = (16,)
    """Tokens per KV block it can serve, the preferred one first."""
    head_dims: tuple[int, ...] | None = None
    """Head sizes its attention takes; ``None``: any."""
    attention: frozenset[str] = frozenset()
    """Of `ATTENTION_FEATURES`: what its attention can do beyond causal."""
    linear_inputs: Mapping[str, str] = field(default_factory=dict)
    """As what a ``linear`` stores its input before it multiplies a weight of a format, where that is not the activation
    dtype: one of `LINEAR_INPUTS`, by weight format. It says how exact the product can be, which conformance holds it
    to."""
    sampling: bool = False
    """Whether its executables sample within the step; otherwise they bring logits and the host samples."""
    masks: bool = False
    """Whether what samples of it, in the step or as `Device.sampler`, takes `SamplingBatch.mask`. Where it does not,
    core writes a mask as biases of -inf, one for each forbidden token. Means nothing where the host samples."""
    ranks: int = 1
    """Most devices one model may span."""
    targets: tuple[str, ...] = ()
    """Kinds of device that it compiles for where none is there (``octavo compile --target``), the usual one first; see
    `Rank.target`. Empty: it compiles only on the device that serves."""

    def __post_init__(self) -> None:
        for name, known in (("dtypes", DTYPES), ("kv_dtypes", KV_DTYPES), ("attention", ATTENTION_FEATURES)):
            wrong = sorted(set(getattr(self, name)) - set(known))
            if wrong:
                raise PlatformError(f"capabilities: {name} has {', '.join(wrong)}; known are {', '.join(known)}")
        for name in ("dtypes", "kv_dtypes", "block_sizes"):
            if not getattr(self, name):
                raise PlatformError(f"capabilities: {name} is empty; name at least one")
        for name in ("block_sizes", "head_dims"):
            if any(size < 1 for size in getattr(self, name) or ()):
                raise PlatformError(f"capabilities: {name} are {getattr(self, name)}; each must be at least 1")
        for weights, kind in self.linear_inputs.items():
            if weights not in self.weight_formats or kind not in LINEAR_INPUTS:
                raise PlatformError(
                    f"capabilities: linear_inputs has {kind} for {weights}; it takes {', '.join(LINEAR_INPUTS)}, for "
                    "formats that weight_formats has"
                )
        if self.ranks < 1:
            raise PlatformError(f"capabilities: ranks is {self.ranks}; it must be at least 1")
