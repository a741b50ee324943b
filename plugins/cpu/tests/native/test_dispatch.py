"""Which set of kernels a processor is given."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
from native.kernels import BEST_FIRST, LEAST_ARM, SETS, KernelSet
from native.library import InProcess
from native.sets import in_process, leave_out, why_not

from octavo_cpu.binding import library_path

NEEDS = {
    "generic": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx_vnni": {"avx2", "fma", "f16c", "avx_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "fma", "f16c"},
    "neon": {"asimd"},
    "neon_dotprod": {"asimd", "asimddp"},
    "neon_i8mm": {"asimd", "asimddp", "i8mm", "bf16"},
}
"""What each set asks of a processor, as Linux names it."""


def features() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return set(value.split())
    return set()


def has(library: InProcess, name: str) -> bool:
    try:
        KernelSet(library, name)
    except LookupError:
        return False
    return True


@pytest.mark.skipif(platform.system() != "Linux", reason="/proc/cpuinfo says what the processor can do")
@pytest.mark.parametrize("name", SETS)
def test_a_set_is_there_exactly_where_the_processor_runs_it(name: str) -> None:
    wanted = name in BEST_FIRST[platform.machine()] and features() >= NEEDS[name]
    assert has(InProcess(library_path()), name) == wanted


@pytest.mark.parametrize("name", SETS)
def test_every_set_is_tried_or_it_is_said_why_not(name: str) -> None:
    reason = why_not(name)
    if reason is not None:
        leave_out(reason)
    assert name in LEAST_ARM or has(in_process(), name)


@pytest.mark.parametrize("name", ["sse", "AVX2", "avx2 ", "generic2"])
def test_a_name_that_is_none_gives_no_set(name: str) -> None:
    assert not has(InProcess(library_path()), name)


def test_without_a_name_the_best_set_is_chosen() -> None:
    library = InProcess(library_path())
    best = next(name for name in BEST_FIRST[platform.machine()] if has(library, name))
    chosen = library.call("octavo_kernel_set", np.frombuffer(b"\0", np.uint8))
    assert chosen == library.call("octavo_kernel_set", np.frombuffer(best.encode() + b"\0", np.uint8)) != 0
