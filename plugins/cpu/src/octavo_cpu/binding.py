"""The native library (``csrc/``) through its C interface. Every call lets go of the interpreter lock.

Handles (pools, models, block pools) are addresses that the library gave out and that go back to it unchanged.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

import octavo_cpu
from octavo.platform import PlatformUnavailable

FORMATS = (
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k",
    "int8", "int4_g128", "int4_g64", "int4_g32", "uint4_g128", "uint4_g64", "uint4_g32",
)  # fmt: skip
"""Weight formats in the order of the library's own numbering (``csrc/blocks.h``)."""

NAME = "liboctavo_cpu.so"
"""The library's file name, on macOS too."""

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector that kernels load."""

_SIGNATURES: Mapping[str, tuple[Any, tuple[Any, ...]]] = MappingProxyType({
    # (result, arguments), in the order of csrc/api.cpp and csrc/ceilings.cpp, which say what they mean
    "octavo_error": (c_char_p, ()),
    "octavo_kernels": (c_char_p, (c_char_p,)),
    "octavo_pool_new": (c_void_p, (c_int, c_void_p, c_int)),
    "octavo_pool_free": (None, (c_void_p,)),
    "octavo_packed_bytes": (c_int64, (c_int, c_int, c_int)),
    "octavo_pack": (None, (c_void_p, c_int, c_void_p, c_int64, c_int, c_int, c_void_p)),
    "octavo_dequantise": (None, (c_int, c_void_p, c_int, c_void_p)),
    "octavo_model_new": (c_void_p, (c_void_p, c_char_p, c_int)),
    "octavo_model_free": (None, (c_void_p,)),
    "octavo_add_matrix": (c_int, (c_void_p, c_int, c_int, c_int, c_void_p)),
    "octavo_add_vector": (c_int, (c_void_p, c_void_p, c_int)),
    "octavo_add_table": (c_int, (c_void_p, c_int, c_void_p, c_int64, c_int)),
    "octavo_add_rope": (c_int, (c_void_p, c_void_p, c_int, c_int, c_int)),
    "octavo_add_buffer": (c_int, (c_void_p, c_int)),
    "octavo_add_step": (None, (c_void_p, c_void_p, c_void_p)),
    "octavo_finish": (None, (c_void_p,)),
    "octavo_run": (c_int, (c_void_p,) * 9),
    "octavo_clock": (c_int, (c_void_p, c_int)),
    "octavo_clock_read": (None, (c_void_p, c_void_p)),
    "octavo_sampler_new": (c_void_p, (c_void_p, c_char_p)),
    "octavo_sampler_free": (None, (c_void_p,)),
    "octavo_sample": (c_int, (c_void_p,) * 5),
    "octavo_kv_new": (c_void_p, (c_int,) * 6),
    "octavo_kv_free": (None, (c_void_p,)),
    "octavo_kv_block": (None, (c_void_p, c_int, c_void_p, c_int)),
    "octavo_ceiling_read": (c_double, (c_void_p, c_void_p, c_int64, c_double)),
    "octavo_ceiling_int8": (c_double, (c_void_p, c_char_p, c_double)),
    "octavo_ceiling_bf16": (c_double, (c_void_p, c_char_p, c_double)),
    "octavo_ceiling_f32": (c_double, (c_void_p, c_char_p, c_double)),
})  # fmt: skip

_CURE = "install octavo-cpu again, which compiles it for this machine (pip install --force-reinstall --no-deps)"


def library_path() -> Path:
    """Where the library lies: in the package's folder, or where an editable installation put it.

    Raises PlatformUnavailable that names the folders where it is missing.
    """
    folders = [Path(folder) for folder in octavo_cpu.__path__]
    for folder in folders:
        if (folder / NAME).is_file():
            return folder / NAME
    places = " or ".join(map(str, folders))
    raise PlatformUnavailable(f"the native library {NAME} is not in {places}; {_CURE}")


def load(path: Path | None = None) -> ctypes.CDLL:
    """The library, each function with its signature.

    Raises PlatformUnavailable, with the reason and the cure, if there is none or it cannot be used.
    """
    path = path or library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise PlatformUnavailable(f"the native library cannot be loaded: {error}; {_CURE}") from error
    for name, (result, arguments) in _SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise PlatformUnavailable(
                f"the native library {path} is older or newer than this package: it has no {name}; {_CURE}"
            ) from None
        function.restype, function.argtypes = result, arguments
    return library


def native_error(library: ctypes.CDLL) -> RuntimeError:
    """What the last call of this thread that failed has to say."""
    text = library.octavo_error() or b"the native library gave no reason"
    return RuntimeError(text.decode(errors="replace"))


def pointer(array: npt.NDArray[Any]) -> int:
    """Where the data of a C-contiguous array lie. The caller keeps the array alive."""
    assert array.flags.c_contiguous, f"native code would misread an array with strides {array.strides}"
    return array.ctypes.data


def aligned(size: int, alignment: int = ALIGNMENT) -> npt.NDArray[np.uint8]:
    """``size`` fresh bytes, not cleared, that begin at a multiple of ``alignment``."""
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]
