"""Device memory: the host holds handles, and gets at what they stand for by copying, in or out.

What a handle keeps is scrambled with a key of the chip's, so that host code that reaches into it, by accident or a
view it should not have, computes garbage that no test takes for an answer.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from octavo.errors import DeviceOutOfMemory
from octavo_fakechip.habits import NAME, padded

Array = npt.NDArray[Any]


class DeviceBuffer:
    """A handle on one array in device memory. Its contents never change: nothing on this chip writes in place."""

    __slots__ = ("__cells", "nbytes", "shape")

    def __init__(self, cells: npt.NDArray[np.uint32], shape: tuple[int, ...], nbytes: int) -> None:
        self.__cells = cells
        self.shape = shape
        self.nbytes = nbytes
        """What it takes on the chip, its rows padded."""

    def cells(self, chip: Memory) -> npt.NDArray[np.uint32]:
        """The scrambled contents; for the chip, which shows that it is one by coming along."""
        if not isinstance(chip, Memory):
            self._refuse()
        return self.__cells

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{NAME}: this is device memory; the host must copy it before it can look at it")

    __array__ = __buffer__ = __bytes__ = __len__ = __iter__ = __getitem__ = __setitem__ = _refuse


class Memory:
    """The chip's memory: how much there is, what is taken, and the two directions in which arrays may be copied."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self._lock = threading.Lock()
        self._key = np.random.default_rng().integers(1, 2**32, 1, np.uint32)

    def take(self, size: int, what: str) -> int:
        """Set ``size`` bytes apart and return it. Raises DeviceOutOfMemory."""
        with self._lock:
            free = self.total - self.taken
            if size > free:
                raise DeviceOutOfMemory(
                    f"{NAME}: {what} needs {size / 2**20:.1f} MiB and {free / 2**20:.1f} MiB of "
                    f"{self.total / 2**20:.1f} MiB are free"
                )
            self.taken += size
            return size

    def give(self, size: int) -> None:
        """Give back what `take` set apart."""
        with self._lock:
            self.taken -= size

    def upload(self, array: Array) -> DeviceBuffer:
        """A copy of a host array of four-byte numbers. It is not set apart here: see `take`."""
        copy = np.array(array, order="C", copy=True)  # the caller's array is the caller's again
        cells = copy.view(np.uint32) if copy.size else np.zeros(copy.shape, np.uint32)
        return DeviceBuffer(cells ^ self._key, copy.shape, size_on_chip(copy.shape))

    def download(self, buffer: DeviceBuffer, dtype: npt.DTypeLike = np.float32) -> Array:
        """A host copy of what a buffer holds."""
        plain: Array = (buffer.cells(self) ^ self._key).view(dtype)
        return plain


def size_on_chip(shape: tuple[int, ...]) -> int:
    """Bytes that an array of four-byte numbers takes, each of its rows padded to whole lanes."""
    *outer, width = shape or (1,)
    return int(np.prod(outer, dtype=np.int64)) * padded(width) * 4
