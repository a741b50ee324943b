"""Builds of the kernels that Python cannot load: for another processor, or with sanitizers.

Each is a program, `kernel_runner.cpp` with the library's kernels, packing and dispatch, which calls them for the tests
(see `library.Runner`). It lies in the plugin's `build` folder, named by a hash of what it was made from, so that the
second run of the tests finds it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

_PLUGIN = Path(__file__).parents[2]
_CSRC = _PLUGIN / "csrc"
_SOURCES = [
    *(_CSRC / f"{name}.cpp" for name in ("blocks", "pack", "dispatch", "pool", "refine", "sampler", "kernel_api")),
    *sorted(_CSRC.glob("kernels_*.cpp")),
]
_INPUTS = [*_SOURCES, *sorted(_CSRC.glob("*.h")), Path(__file__).with_name("kernel_runner.cpp")]
_RECIPE = _PLUGIN / "CMakeLists.txt"


class Missing(Exception):
    """A tool that a build needs is not installed; the message says which package has it."""


@dataclass(frozen=True)
class Build:
    """One way to compile the library: a compiler, what it is told, and what runs the result."""

    name: str
    compiler: str
    flags: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()
    package: str = ""

    def command(self) -> list[str]:
        """The command that starts the runner, which is compiled first if it is not there."""
        self.check_tools()
        return [*self.emulator, str(self._program())]

    def check_tools(self) -> None:
        """Raises Missing for a tool that is not installed."""
        for tool in (self.compiler, *self.emulator[:1]):
            if shutil.which(tool) is None:
                raise Missing(f"{tool} is not installed: apt-get install {self.package}")

    def _program(self) -> Path:
        version = _output(self.compiler, "--version")
        text = [version, *self.flags, _RECIPE.read_text(), *(path.name + path.read_text() for path in _INPUTS)]
        digest = hashlib.sha256("\0".join(text).encode()).hexdigest()[:16]
        program = _PLUGIN / "build" / "tests" / f"{self.name}-{digest}"
        if program.exists():
            return program
        for old in program.parent.glob(f"{self.name}-*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        work = program.with_suffix(f".{os.getpid()}")
        work.mkdir(parents=True)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            objects = list(workers.map(lambda path: self._compile(path, work), [*_SOURCES, _INPUTS[-1]]))
        _output(self.compiler, *self.flags, "-pthread", *map(str, objects), "-o", str(work / "runner"))
        (work / "runner").replace(program)
        shutil.rmtree(work)
        return program

    def _compile(self, source: Path, folder: Path) -> Path:
        target = folder / f"{source.stem}.o"
        common = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized"]
        own = self._instruction_set(source.name)
        _output(self.compiler, *common, *own, *self.flags, "-pthread", "-c", str(source), "-o", str(target))
        return target

    def _instruction_set(self, file: str) -> list[str]:
        """The flags that the library's own recipe gives a file, if this compiler knows them."""
        found = re.search(rf"octavo_instruction_set\({re.escape(file)}\s+([^)]*)\)", _RECIPE.read_text())
        flags = found[1].split() if found else []
        probe = [self.compiler, *flags, "-x", "c++", "-fsyntax-only", os.devnull]
        return flags if subprocess.run(probe, capture_output=True, check=False).returncode == 0 else []


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


SANITIZED = Build(
    "sanitized",
    os.environ.get("CXX", "g++"),
    (
        *("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
        *("-fno-omit-frame-pointer", "-g1", "-O1"),  # at -O2 the compiler takes a minute longer
    ),
    package="g++",
)
"""AddressSanitizer and UndefinedBehaviorSanitizer; the first finding ends the runner."""

_AARCH64 = Build(
    "aarch64",
    "aarch64-linux-gnu-g++",
    ("-static",),
    ("qemu-aarch64-static",),
    "g++-aarch64-linux-gnu qemu-user-static",
)


def aarch64(processor: str) -> Build:
    """64-bit Arm, in an emulator of a processor by the emulator's name; any instruction that it has not ends the
    runner. All processors share one program.
    """
    return replace(_AARCH64, emulator=(*_AARCH64.emulator, "-cpu", processor))
