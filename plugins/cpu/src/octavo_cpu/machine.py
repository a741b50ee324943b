"""What this machine gives at best, measured: the ceilings that kernels are held against.

Decoding cannot be faster than the weights can be read, nor a large batch than the arithmetic allows. Each measurement
keeps every thread of a pool busy for `SECONDS` and takes the best of many short rounds (``csrc/ceilings.cpp``).
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from octavo.platform import DeviceOutOfMemory
from octavo.platform.host import host_memory

SECONDS = 0.25
"""Of each measurement, without the time to fill a buffer."""

_SMALLEST = 256 << 20  # bytes of a buffer; far more than one core's share of any cache
_CACHES = 3  # times the last-level caches, so that at most a third of a round could come from them


INSTRUCTIONS: Mapping[str, str] = MappingProxyType({
    "avx512": "AVX-512 with VNNI and BF16",
    "avx_vnni": "AVX2 with VNNI",
    "avx2": "AVX2",
    "neon_i8mm": "NEON with matrix products of int8 and bf16",
    "neon_dotprod": "NEON with dot products of int8",
    "neon": "NEON alone: this processor has no dot products of int8, which quantized weights are fastest with",
    "generic": "none, plain C++ and slow: this processor has none that the library has kernels for",
})  # fmt: skip
"""What each set of kernels runs on, for people."""


@dataclass(frozen=True)
class Ceilings:
    """Per second, all threads together: bytes read from memory, and operations (a multiply-add is two) on int8, bf16
    and float32 by the best instructions that the ``kernels`` may use.
    """

    kernels: str
    threads: int
    read_bytes: float
    int8_operations: float
    bf16_operations: float
    f32_operations: float

    def peak(self, arithmetic: str) -> float:
        """Operations per second on ``int8``, ``bf16`` or ``f32``."""
        return {"int8": self.int8_operations, "bf16": self.bf16_operations, "f32": self.f32_operations}[arithmetic]


def measure_ceilings(library: ctypes.CDLL, pool: Any, threads: int, kernels: str) -> Ceilings:
    """The machine's ceilings, for a set of kernels by name and a pool of ``threads`` threads that does nothing else.

    Takes little more than a second. Raises DeviceOutOfMemory if there is no memory to read from.
    """
    return Ceilings(
        kernels,
        threads,
        read_bandwidth(library, pool),
        _operations(library.octavo_ceiling_int8, pool, kernels),
        _operations(library.octavo_ceiling_bf16, pool, kernels),
        _operations(library.octavo_ceiling_f32, pool, kernels),
    )


def read_bandwidth(library: ctypes.CDLL, pool: Any) -> float:
    """Bytes per second that the pool's threads read together from a buffer well beyond the caches."""
    size = buffer_bytes(last_level_bytes(), host_memory().free)
    found = float(library.octavo_ceiling_read(pool, None, size, SECONDS))
    if found < 0:
        raise DeviceOutOfMemory(f"no memory for a buffer of {size} bytes to measure the read bandwidth with")
    return found


def _operations(function: Callable[..., float], pool: Any, kernels: str) -> float:
    found = float(function(pool, kernels.encode(), SECONDS))
    assert found >= 0, f"kernels {kernels} cannot run here; ask octavo_kernels first"
    return found


def buffer_bytes(cache: int, free: int) -> int:
    """Size of the buffer to read: beyond the caches, but at most a quarter of the free memory."""
    return min(max(_SMALLEST, _CACHES * cache), free // 4)


def last_level_bytes(processors: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of all last-level caches of the machine together; 0 where the system does not say."""
    caches = {_cache(folder) for folder in processors.glob("cpu[0-9]*/cache/index[0-9]*")}
    deepest = max((level for level, _, _ in caches), default=0)
    return sum(size for level, size, _ in caches if level == deepest)


def _cache(folder: Path) -> tuple[int, int, str]:
    """(level, bytes, the processors that share it); zeros if the system does not say."""
    try:
        level, size, sharing = ((folder / file).read_text().strip() for file in ("level", "size", "shared_cpu_list"))
        return int(level), int(size.removesuffix("K")) * 1024, sharing
    except (OSError, ValueError):
        return 0, 0, ""


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as its maker gives it, else its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (
        value.strip() for name, _, value in (line.partition(":") for line in lines) if name.strip() == "model name"
    )
    return next(names, "") or platform.processor() or platform.machine()
