"""The sets of kernels that this machine can try, each as the parameter of every kernel test.

A set that it cannot try is left out of the parameters; `test_dispatch` skips once for it, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache

import pytest
from native.build import SANITIZED, Build, Missing
from native.build import aarch64 as aarch64_build
from native.kernels import LEAST_ARM, SETS, KernelSet
from native.library import Library, Runner
from native.sets import in_process, why_not


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every kernel test runs with each set that can be tried."""
    if "kernels" in metafunc.fixturenames:
        metafunc.parametrize(
            "kernels", [name for name in SETS if why_not(name) is None], indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """Each set: as this processor runs it, or in an emulator."""
    name = request.param
    try:
        return KernelSet(in_process(), name)
    except LookupError:
        return KernelSet(request.getfixturevalue("aarch64")(LEAST_ARM[name]), name)


@pytest.fixture(scope="session")
def generic() -> KernelSet:
    """The scalar twins."""
    return KernelSet(in_process(), "generic")
