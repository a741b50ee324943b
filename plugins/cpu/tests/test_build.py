"""The build: one library for every machine of its architecture, clean under the sanitizers, clear where it cannot be.

The builds that are made here stay in the plugin's ``build`` folder, so that the next run compiles only what changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo_cpu.binding import library_path

PLUGIN = Path(__file__).parents[1]
BUILDS = PLUGIN / "build" / "tests"
CALLS_NATIVE_CODE = ["test_binding.py", "test_machine.py", "test_device.py", "test_encoders.py", "test_sampler.py"]
"""Tests that run again with the library built for the sanitizers. (The kernels' own are in native/.)"""
SELECTED = "not (long_context or wide_heads) or mistral or (wide_heads and int8)"
"""Of those, all but what takes minutes there and enters no other code: one model's long contexts are enough."""


def tool(name: str, cure: str = "the extra octavo-cpu[test] brings it") -> str:
    """A build tool of the environment's or the system's."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{name} is not installed: {cure}")
    return found


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)


def configure(folder: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    return run(tool("cmake"), "-S", str(PLUGIN), "-B", str(folder), "-G", "Ninja", ninja, *options, env=env)


def build(name: str, *options: str) -> Path:
    """The folder of a build that is up to date."""
    folder = BUILDS / name
    done = configure(folder, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(tool("cmake"), "--build", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


# -- without a compiler -----------------------------------------------------------------------------

SENTENCE = (
    "octavo-cpu is compiled while it is installed, and no C++ compiler was found{tried}. Install one: apt-get install "
    "g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), xcode-select --install (macOS)."
)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Standard error with its line breaks undone."""
    return " ".join(done.stderr.split())


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    cmake, ninja = tool("cmake"), tool("ninja")
    empty = tmp_path / "bin"
    empty.mkdir()
    env = {"PATH": str(empty), "HOME": str(tmp_path)}
    done = run(
        cmake, "-S", str(PLUGIN), "-B", str(tmp_path / "b"), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", env=env
    )
    assert done.returncode != 0
    assert SENTENCE.format(tried="") in said(done)


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = configure(tmp_path / "b", env={**os.environ, "CXX": "/nowhere/g++"})
    assert done.returncode != 0
    assert SENTENCE.format(tried=" (CXX=/nowhere/g++ does not work)") in said(done)


# -- one library for every machine ------------------------------------------------------------------


@pytest.fixture(scope="session")
def release() -> Path:
    """A build as people get it, warnings being errors."""
    return build("release", "-DOCTAVO_WARNINGS_ARE_ERRORS=ON")


def test_nothing_but_the_c_interface_is_visible() -> None:
    done = run(tool("nm"), "--dynamic", "--defined-only", "--format=posix", str(library_path()))
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names
    assert [name for name in names if not name.startswith("octavo_")] == []


@pytest.fixture(scope="session")
def for_arm() -> Path:
    """The same for 64-bit Arm, by a compiler that runs here."""
    compiler = tool("aarch64-linux-gnu-g++", "apt-get install g++-aarch64-linux-gnu")
    target = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={compiler}")
    return build("aarch64", "-DOCTAVO_WARNINGS_ARE_ERRORS=ON", *target)


@pytest.mark.parametrize(
    ("made", "nm", "sets"),
    [
        ("release", "nm", ["avx2", "avx512", "avx_vnni"]),
        ("for_arm", "aarch64-linux-gnu-nm", ["neon", "neon_dotprod", "neon_i8mm"]),
    ],
)
def test_what_is_compiled_for_an_instruction_set_stays_in_its_file(
    request: pytest.FixtureRequest, made: str, nm: str, sets: list[str]
) -> None:
    """A weak symbol (an inline function, a template of the standard library) exists once in the library, and the linker
    takes any file's: it would be the one with instructions that other machines have not. And the sets that are there,
    not just the function that says they are not, are those of the architecture.
    """
    objects = sorted(request.getfixturevalue(made).rglob("kernels_*.o"))
    tables = set()
    for path in objects:
        done = run(tool(nm), "--defined-only", "--format=posix", str(path))
        assert done.returncode == 0, done.stderr
        kinds = {name: kind for name, kind, *_ in (line.split() for line in done.stdout.splitlines())}
        weak = [name for name, kind in kinds.items() if kind in "WVu"]
        assert weak == [], f"{path.name} shares {weak}; give them internal linkage"
        assert "T" in kinds.values(), f"{path.name} defines nothing"
        if any("kTable" in name for name in kinds):
            tables.add(path.name.removeprefix("kernels_").removesuffix(".cpp.o"))
    assert tables == {"generic", *sets}


def test_the_wheel_is_for_any_python() -> None:
    assert re.search(r'^wheel\.py-api = "py3" ', (PLUGIN / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    done = run(tool("nm"), "--dynamic", "--undefined-only", "--format=posix", str(library_path()))
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names
    assert [name for name in names if re.match(r"_?Py[A-Z_]", name)] == []


# -- sanitizers -------------------------------------------------------------------------------------

# Runs pytest with the folder of the sanitized library in front of the one that is installed.
INSTEAD = """
import sys
import octavo_cpu
octavo_cpu.__path__.insert(0, sys.argv[1])
from octavo_cpu.binding import library_path
assert str(library_path().parent) == sys.argv[1]
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the sanitizers' runtime is preloaded the Linux way")
def test_the_library_is_clean_under_the_sanitizers() -> None:
    folder = build("sanitized", "-DOCTAVO_SANITIZE=ON", "-DOCTAVO_WARNINGS_ARE_ERRORS=ON")
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (folder / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert compiler is not None
    # Both before anything else: the first wraps what throws exceptions in the second, and Python links neither.
    libraries = [
        run(compiler[1], f"-print-file-name={name}").stdout.strip() for name in ("libasan.so", "libstdc++.so.6")
    ]
    options = {"LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}  # Python itself never frees all
    tests = [str(PLUGIN / "tests" / name) for name in CALLS_NATIVE_CODE]
    command = [sys.executable, "-c", INSTEAD, str(folder), *tests, "-k", SELECTED, "-q", "--capture=sys"]
    command += ["-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=PLUGIN, env={**os.environ, **options}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " passed" in done.stdout
