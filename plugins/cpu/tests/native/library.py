"""The library's kernel interface (`csrc/kernel_api.h`), in this process or in another."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Argument = Union[int, float, Array, None, "Reference"]


class Reference(int):
    """An address that an earlier call returned."""


class Library(Protocol):
    """Calls a function of the kernel interface by name. Arrays change in place; one given twice is one memory."""

    def call(self, name: str, *arguments: Argument) -> int: ...


class InProcess:
    """The library as Python loads it."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def call(self, name: str, *arguments: Argument) -> int:
        function = getattr(self._library, name)
        function.restype = ctypes.c_int64
        return int(function(*map(_as_c, arguments)))


def _as_c(argument: Argument) -> object:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, Reference):
        return ctypes.c_void_p(argument)
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_double(argument) if isinstance(argument, float) else ctypes.c_int64(argument)


class Runner:
    """`kernel_runner.cpp`, built in some other way, at the other end of two pipes."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the runner
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=1 << 20
        )

    def call(self, name: str, *arguments: Argument) -> int:
        arrays: list[Array] = []
        parts = [struct.pack("<I", len(name)), name.encode(), struct.pack("<I", len(arguments))]
        for index, argument in enumerate(arguments):
            earlier = [i for i in range(index) if argument is not None and arguments[i] is argument]
            if isinstance(argument, np.ndarray) and not earlier:
                assert argument.flags.c_contiguous
                arrays.append(argument)
                parts += [struct.pack("<BQ", 2, argument.nbytes), argument.tobytes()]
            elif isinstance(argument, np.ndarray):
                parts.append(struct.pack("<Bq", 4, earlier[0]))
            elif argument is None:
                parts.append(b"\3")
            elif isinstance(argument, float):
                parts.append(struct.pack("<Bd", 1, argument))
            else:
                parts.append(struct.pack("<Bq", 0, argument))
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        try:
            to.write(b"".join(parts))
            to.flush()
            (result,) = struct.unpack("<q", self._take(back, 8))
            for array in arrays:
                received = np.frombuffer(self._take(back, array.nbytes), array.dtype).reshape(array.shape)
                if array.flags.writeable:
                    array[...] = received
        except (BrokenPipeError, EOFError):
            raise AssertionError(f"{name}: the runner ended\n{self._last_words()}") from None
        return int(result)

    def close(self) -> None:
        """End the runner; AssertionError with what it said if it did not end well."""
        self._process.communicate()
        assert self._process.returncode == 0, self._last_words()
        self._errors.close()

    @staticmethod
    def _take(stream: IO[bytes], count: int) -> bytes:
        data = stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")
