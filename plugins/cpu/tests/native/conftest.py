"""The sets of kernels that this machine can try, each as the parameter of every kernel test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from native.build import AARCH64, SANITIZED, Build, Missing
from native.kernels import SETS, KernelSet
from native.library import InProcess, Library, Runner

from octavo_cpu.binding import library_path


@cache
def _in_process() -> InProcess:
    return InProcess(library_path())


@pytest.fixture(scope="session")
def aarch64() -> Iterator[Library]:
    """The library for 64-bit Arm, in an emulator."""
    yield from _runner(AARCH64)


@pytest.fixture(scope="session")
def sanitized() -> Iterator[Library]:
    """The library with AddressSanitizer and UndefinedBehaviorSanitizer."""
    yield from _runner(SANITIZED)


def _runner(build: Build) -> Iterator[Library]:
    try:
        runner = Runner(build.command())
    except Missing as missing:
        pytest.skip(str(missing))
    yield runner
    runner.close()


@pytest.fixture(scope="session", params=SETS)
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """Each set: as this processor runs it, or in an emulator, or not at all, which the skip says."""
    name = request.param
    try:
        return KernelSet(_in_process(), name)
    except LookupError:
        if name != "neon":
            pytest.skip(f"this processor does not run the {name} kernels (test_dispatch checks that it could not)")
        return KernelSet(request.getfixturevalue("aarch64"), name)


@pytest.fixture(scope="session")
def generic() -> KernelSet:
    """The scalar twins."""
    return KernelSet(_in_process(), "generic")
