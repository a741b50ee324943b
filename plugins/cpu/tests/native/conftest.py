"""The sets of kernels that this machine can try, each as the parameter of every kernel test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache

import pytest
from native.build import SANITIZED, Build, Missing
from native.build import aarch64 as aarch64_build
from native.kernels import LEAST_ARM, SETS, KernelSet
from native.library import InProcess, Library, Runner

from octavo_cpu.binding import library_path


@cache
def _in_process() -> InProcess:
    return InProcess(library_path())


@pytest.fixture(scope="session")
def aarch64() -> Iterator[Callable[[str], Library]]:
    """The library for 64-bit Arm, in an emulator of a processor by name."""
    with ExitStack() as stack:
        yield cache(lambda processor: stack.enter_context(closing(_runner(aarch64_build(processor)))))


@pytest.fixture(scope="session")
def sanitized() -> Iterator[Library]:
    """The library with AddressSanitizer and UndefinedBehaviorSanitizer."""
    with closing(_runner(SANITIZED)) as runner:
        yield runner


def _runner(build: Build) -> Runner:
    try:
        return Runner(build.command())
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session", params=SETS)
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """Each set: as this processor runs it, or in an emulator, or not at all, which the skip says."""
    name = request.param
    try:
        return KernelSet(_in_process(), name)
    except LookupError:
        if name not in LEAST_ARM:
            pytest.skip(f"this processor does not run the {name} kernels (test_dispatch checks that it could not)")
        return KernelSet(request.getfixturevalue("aarch64")(LEAST_ARM[name]), name)


@pytest.fixture(scope="session")
def generic() -> KernelSet:
    """The scalar twins."""
    return KernelSet(_in_process(), "generic")
