"""Measured ceilings, and what the machine says about itself."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.platform import DeviceOutOfMemory
from octavo_cpu import machine
from octavo_cpu.binding import aligned, load, pointer
from octavo_cpu.machine import buffer_bytes, last_level_bytes, measure_ceilings, processor_name

MIB = 1 << 20
SETS = ("generic", "avx2", "avx_vnni", "avx512", "neon", "neon_dotprod", "neon_i8mm")


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return load()


@pytest.fixture(params=[1, 2])
def pool(request: pytest.FixtureRequest, library: ctypes.CDLL) -> Iterator[Any]:
    pins = np.empty(0, np.int32)
    handle = library.octavo_pool_new(request.param, pointer(pins), 0)
    yield handle
    library.octavo_pool_free(handle)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short for a good figure, long enough to see that there is one."""
    monkeypatch.setattr(machine, "SECONDS", 0.005)
    monkeypatch.setattr(machine, "_SMALLEST", 4 * MIB)
    monkeypatch.setattr(machine, "last_level_bytes", lambda: 0)


@pytest.mark.parametrize("kernels", SETS)
def test_every_set_of_kernels_has_ceilings_where_it_runs(library: ctypes.CDLL, pool: Any, kernels: str) -> None:
    if library.octavo_kernels(kernels.encode()) is None:
        assert library.octavo_ceiling_int8(pool, kernels.encode(), 0.001) == -1
        assert library.octavo_ceiling_bf16(pool, kernels.encode(), 0.001) == -1
        assert library.octavo_ceiling_f32(pool, kernels.encode(), 0.001) == -1
        return
    found = measure_ceilings(library, pool, 2, kernels)
    assert (found.kernels, found.threads) == (kernels, 2)
    for figure in (found.read_bytes, found.int8_operations, found.bf16_operations, found.f32_operations):
        assert math.isfinite(figure)
        assert figure > 1e6


def test_every_set_of_kernels_says_what_it_runs_on(library: ctypes.CDLL) -> None:
    assert set(machine.INSTRUCTIONS) == set(SETS)
    assert "no dot products" in machine.INSTRUCTIONS["neon"] and "slow" in machine.INSTRUCTIONS["generic"]
    assert library.octavo_kernels(b"").decode() in SETS


def test_memory_of_the_caller_s_can_be_read_too(library: ctypes.CDLL, pool: Any) -> None:
    data = aligned(MIB + 64)
    before = np.arange(data.size, dtype=np.uint8)
    data[:] = before
    assert library.octavo_ceiling_read(pool, pointer(data), data.size, 0.002) > 0
    np.testing.assert_array_equal(data, before)


def test_too_little_memory_is_an_error_that_says_so(
    library: ctypes.CDLL, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "buffer_bytes", lambda *_: 1 << 60)
    with pytest.raises(DeviceOutOfMemory, match=f"{1 << 60} bytes"):
        machine.read_bandwidth(library, pool)


@pytest.mark.parametrize(
    ("cache", "free", "expected"),
    [(0, 1 << 40, 4 * MIB), (32 * MIB, 1 << 40, 96 * MIB), (32 * MIB, 40 * MIB, 10 * MIB)],
    ids=["unknown cache", "beyond the cache", "little memory"],
)
def test_the_buffer_is_beyond_the_caches_and_within_the_memory(cache: int, free: int, expected: int) -> None:
    assert buffer_bytes(cache, free) == expected


def test_each_last_level_cache_counts_once(tmp_path: Path) -> None:
    """Four cores in pairs: a second-level cache each, a third-level one for each pair."""
    for cpu in range(4):
        for index, (level, size, sharing) in enumerate([
            ("1", "32K", f"{cpu}"),
            ("2", "1024K", f"{cpu}"),
            ("3", "16384K", "0-1" if cpu < 2 else "2-3"),
        ]):  # fmt: skip
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", sharing)):
                (folder / name).write_text(text + "\n")
    (tmp_path / "cpufreq").mkdir()
    assert last_level_bytes(tmp_path) == 32 * MIB
    assert last_level_bytes(tmp_path / "none") == 0


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9555\nflags\t: fpu\n")
    assert processor_name(cpuinfo) == "AMD EPYC 9555"
    cpuinfo.write_text("processor\t: 0\nCPU implementer\t: 0x41\n")
    assert processor_name(cpuinfo)
    assert processor_name()
