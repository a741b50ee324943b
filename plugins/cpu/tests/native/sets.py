"""Which sets of kernels can be tried on this machine."""

from __future__ import annotations

import os
from functools import cache

import pytest
from native.build import Missing
from native.build import aarch64 as aarch64_build
from native.kernels import LEAST_ARM, KernelSet
from native.library import InProcess

from octavo_cpu.binding import library_path


@cache
def in_process() -> InProcess:
    """The library that this process has loaded."""
    return InProcess(library_path())


@cache
def why_not(name: str) -> str | None:
    """Why a set cannot be tried here; None if it can, by this processor or in an emulator."""
    try:
        KernelSet(in_process(), name)
    except LookupError:
        if name not in LEAST_ARM:
            return f"this processor does not run the {name} kernels, and no emulator at hand does"
        return arm_missing()
    return None


@cache
def arm_missing() -> str | None:
    """What is not installed of what the kernels for Arm are compiled and run with, and the cure."""
    try:
        aarch64_build("max").check_tools()
    except Missing as missing:
        return str(missing)
    return None


def leave_out(reason: str, *, module: bool = False) -> None:
    """Skip for ``reason``. Continuous integration has the tools for Arm: there their absence is a failure."""
    if os.environ.get("CI") and reason == arm_missing():
        pytest.fail(f"{reason} (CI is set, so nothing is left out)", pytrace=False)
    pytest.skip(reason, allow_module_level=module)
