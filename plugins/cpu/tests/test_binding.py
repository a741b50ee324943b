"""The native library as Python finds, loads and calls it."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import signal
from collections.abc import Iterator
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo_cpu
from octavo.platform import PlatformUnavailable
from octavo.quant import FORMATS as STORED
from octavo.quant import WeightTensor, dequantise
from octavo_cpu import binding
from octavo_cpu.binding import FORMATS, aligned, library_path, load, native_error, pointer
from octavo_cpu.threads import ForkGuard

SOURCES = Path(__file__).parents[1] / "csrc"


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return load()


@pytest.fixture
def pool(library: ctypes.CDLL) -> Iterator[Any]:
    """Two threads, wherever they may run."""
    pins = np.empty(0, np.int32)
    handle = library.octavo_pool_new(2, pointer(pins), 0)
    yield handle
    library.octavo_pool_free(handle)


# -- finding and loading ----------------------------------------------------------------------------


def test_the_library_lies_in_the_package() -> None:
    assert library_path().name == binding.NAME
    assert str(library_path().parent) in list(octavo_cpu.__path__)


def test_a_missing_library_is_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(octavo_cpu, "__path__", [str(tmp_path)])
    with pytest.raises(PlatformUnavailable, match=f"not in {re.escape(str(tmp_path))}; install octavo-cpu again"):
        load()


def test_a_library_that_cannot_be_loaded_is_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / binding.NAME
    path.write_bytes(b"\x7fELF of some other machine" + bytes(5000))
    with pytest.raises(PlatformUnavailable, match=rf"cannot be loaded: .*{re.escape(path.name)}.*; install octavo-cpu"):
        load(path)


def test_a_library_of_another_version_is_not_used() -> None:
    with pytest.raises(PlatformUnavailable, match="has no octavo_error; install octavo-cpu again"):
        load(Path(ctypes.util.find_library("m") or "libm.so.6"))


# -- signatures -------------------------------------------------------------------------------------

DEFINITION = re.compile(r"^(?P<result>[\w ]+?[ *]+)(?P<name>octavo_\w+)\((?P<arguments>[^)]*)\) \{", re.MULTILINE)


def c_type(declaration: str) -> object:
    """The ctypes class of a result, or of a parameter without its name."""
    words = declaration.replace("const", "").replace("*", " * ").split()
    if "*" in words:
        return c_char_p if words == ["char", "*"] else c_void_p
    return {"void": None, "int": c_int, "int64_t": c_int64, "double": c_double}[" ".join(words)]


def declared(text: str) -> dict[str, tuple[object, tuple[object, ...]]]:
    found = {}
    for match in DEFINITION.finditer(text):
        parameters = [p for p in match["arguments"].split(",") if p.strip()]
        types = tuple(c_type(re.sub(r"\w+\s*$", "", parameter)) for parameter in parameters)
        found[match["name"]] = (c_type(match["result"]), types)
    return found


def test_the_table_of_signatures_is_that_of_the_c_sources() -> None:
    text = "\n".join((SOURCES / file).read_text(encoding="utf-8") for file in ("api.cpp", "ceilings.cpp"))
    assert declared(text) == dict(binding._SIGNATURES)


# -- calls ------------------------------------------------------------------------------------------


def test_formats_have_the_library_s_numbers(library: ctypes.CDLL) -> None:
    assert set(FORMATS) == set(STORED)
    rng = np.random.default_rng(0)
    for code, name in enumerate(FORMATS):
        row_bytes = STORED[name].row_bytes(512)
        data = rng.integers(0, 0x3C, row_bytes, dtype=np.uint8)  # no byte makes a scale infinite
        expected = dequantise(WeightTensor(STORED[name], (512,), data))
        found = np.full(512, np.nan, np.float32)
        library.octavo_dequantise(code, pointer(data), 512, pointer(found))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max(), err_msg=name)


def test_it_names_the_kernels_that_it_chooses_and_none_that_it_lacks(library: ctypes.CDLL) -> None:
    best = library.octavo_kernels(b"")
    assert best
    assert library.octavo_kernels(best) == best
    assert library.octavo_kernels(b"generic") == b"generic"
    assert library.octavo_kernels(b"abacus") is None


@pytest.mark.parametrize("outputs", [1, 16, 100])
def test_all_threads_together_pack_what_one_would(library: ctypes.CDLL, pool: Any, outputs: int) -> None:
    code, inputs = FORMATS.index("f32"), 24
    weights = np.random.default_rng(1).standard_normal((outputs, inputs)).astype(np.float32)
    packed = aligned(library.octavo_packed_bytes(code, outputs, inputs))
    library.octavo_pack(pool, code, pointer(weights), weights.strides[0], outputs, inputs, pointer(packed))
    tiles = packed.view(np.float32).reshape(-1, inputs, 16)  # see csrc/pack.h
    np.testing.assert_array_equal(tiles.transpose(0, 2, 1).reshape(-1, inputs)[:outputs], weights)
    assert not tiles.transpose(0, 2, 1).reshape(-1, inputs)[outputs:].any()


def test_a_call_that_fails_says_why(library: ctypes.CDLL) -> None:
    assert not library.octavo_kv_new(0, 1 << 15, 1 << 20, 128, 128, 512), "2 ** 60 bytes"
    error = native_error(library)
    assert isinstance(error, RuntimeError)
    assert "alloc" in str(error)


def test_a_child_of_the_pool_s_process_is_told_in_place_of_hanging(library: ctypes.CDLL, pool: Any) -> None:
    guard = ForkGuard()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            guard.check()
            library.octavo_ceiling_int8(pool, b"generic", 0.001)  # would wait for the other thread for ever
        except PlatformUnavailable:
            status = 42
        finally:
            os._exit(status)
    signal.alarm(20)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    finally:
        signal.alarm(0)
    guard.check()
    assert library.octavo_ceiling_int8(pool, b"generic", 0.001) > 0, "the parent's pool works on"


# -- memory -----------------------------------------------------------------------------------------


@given(size=st.integers(1, 5000), alignment=st.sampled_from([1, 64, 4096]))
def test_aligned_bytes_start_where_they_should(size: int, alignment: int) -> None:
    data = aligned(size, alignment)
    assert (data.size, data.dtype, data.ctypes.data % alignment) == (size, np.uint8, 0)
    data[:] = 7


def test_an_array_with_gaps_has_no_pointer() -> None:
    array = np.zeros((4, 4), np.float32)
    assert pointer(array) == array.ctypes.data
    with pytest.raises(AssertionError, match="strides"):
        pointer(array[:, ::2])
