"""The native sampler: the tokens of `octavo.runner.HostSampler`, on all threads."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import Samples, SamplingBatch
from octavo_cpu.binding import native_error, pointer
from octavo_cpu.threads import ForkGuard


class NativeSampler:
    """Meets `octavo.platform.Sampler`. Leaves the logits as they are."""

    def __init__(self, library: ctypes.CDLL, pool: Any, kernels: str, forks: ForkGuard) -> None:
        self._library = library
        self._forks = forks
        self._handle = library.octavo_sampler_new(pool, kernels.encode())

    def __del__(self) -> None:
        if not self._forks.lost:  # in a fork there are no threads to join
            self._library.octavo_sampler_free(self._handle)

    def sample(self, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
        """See `Sampler.sample`. RuntimeError for a batch that breaks its contract."""
        self._forks.check()
        logits = np.ascontiguousarray(logits, np.float32)
        rows, vocab = logits.shape
        draws = batch.draws
        tokens, failed = np.empty(draws, np.int32), np.empty(draws, np.bool_)
        results: list[npt.NDArray[Any]] = [tokens, failed]
        most = min(int(batch.logprobs.max(initial=-1)), vocab)
        if most >= 0:
            results += [np.zeros(draws, np.float32), np.zeros(draws, np.int32)]
            results += [np.zeros((draws, most), np.int32), np.zeros((draws, most), np.float32)]
        given = batch_arrays(batch)
        masks, words = given[-2:]
        if len(masks) and words.shape != (len(masks), -(-vocab // 32)):
            raise RuntimeError(f"a mask of shape {words.shape} does not fit {len(masks)} draws from {vocab} tokens")
        sizes = np.array([rows, vocab, draws, len(batch.bias[0]), max(most, 0), len(masks)], np.int32)
        batch_at = (ctypes.c_void_p * len(given))(*map(pointer, given))
        results_at = (ctypes.c_void_p * 6)(*map(pointer, results))  # the last four may be null
        status = self._library.octavo_sample(
            self._handle, pointer(logits), pointer(sizes), ctypes.addressof(batch_at), ctypes.addressof(results_at)
        )
        if status != 0:
            raise native_error(self._library)
        return Samples(tokens, failed, *results[2:])


def batch_arrays(batch: SamplingBatch) -> list[npt.NDArray[Any]]:
    """In the order of the library's SamplingBatch."""
    ints, floats = np.int32, np.float32
    bias_draw, bias_token, bias_value = batch.bias
    mask_draw, mask_words = batch.mask or (np.zeros(0, ints), np.zeros((0, 0), np.uint32))
    parts: list[tuple[Any, tuple[npt.NDArray[Any], ...]]] = [
        (ints, (batch.row, batch.target)),
        (floats, (batch.temperature,)),
        (ints, (batch.top_k,)),
        (floats, (batch.top_p, batch.min_p, batch.repetition, batch.presence, batch.frequency)),
        (np.uint64, (batch.seed,)),
        (ints, (batch.sample_index, batch.position, batch.logprobs, bias_draw, bias_token)),
        (floats, (bias_value,)),
        (ints, (*batch.history, mask_draw)),
        (np.uint32, (mask_words,)),
    ]
    return [np.ascontiguousarray(array, kind) for kind, arrays in parts for array in arrays]
