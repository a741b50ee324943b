"""Every kernel under AddressSanitizer and UndefinedBehaviorSanitizer, with the results of the installed library.

The sanitized kernels run in a process of their own (`kernel_runner.cpp`), where each array is an allocation of exactly
its size: one element read or written beyond it ends the process, and the test with it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from native.build import SANITIZED
from native.kernels import BEST_FIRST, GATES, KernelSet
from native.library import InProcess, Library, Runner
from native.numbers16 import F32
from native.sequences import random_sequence, unit
from native.weights import FORMATS, PLAIN, QUANTIZED, random_weights
from runner.draws import Draw, make_batch

from octavo_cpu.binding import library_path


@pytest.fixture(scope="session", params=BEST_FIRST[platform.machine()])
def pair(request: pytest.FixtureRequest, sanitized: Library) -> tuple[KernelSet, KernelSet]:
    """A set as installed, and with sanitizers."""
    try:
        installed = KernelSet(InProcess(library_path()), request.param)
    except LookupError:
        pytest.skip(f"this processor does not run the {request.param} kernels (test_dispatch checks that it could not)")
    return installed, KernelSet(sanitized, request.param)


def same(pair: tuple[KernelSet, KernelSet], calls: Callable[[KernelSet], Iterator[np.ndarray]]) -> None:
    count = 0
    for installed, checked in zip(calls(pair[0]), calls(pair[1]), strict=True):
        assert np.array_equal(installed, checked, equal_nan=installed.dtype.kind == "f")
        count += 1
    assert count > 0


@pytest.mark.parametrize("format", FORMATS)
def test_products_stay_inside_their_arrays(pair: tuple[KernelSet, KernelSet], format: str) -> None:
    def calls(kernels: KernelSet) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(1)
        for rows, outputs, inputs in (
            (1, 1, 256),
            (2, 16, 512),
            (3, 17, 256),
            (5, 40, 256),
            (16, 33, 256),
            (23, 15, 768),
            *([(4, 20, 77)] if format in PLAIN else []),
        ):
            weights = random_weights(rng, format, outputs, inputs)
            x = rng.standard_normal((rows, inputs)).astype(np.float32)
            packed = kernels.pack(weights)
            yield packed
            yield kernels.dequantise(weights)
            yield kernels.matmul(
                weights,
                packed,
                kernels.refine(x, kernels.quantise(x), 1.0)
                if format in QUANTIZED
                else kernels.to_bf16(x)
                if format == "bf16"
                else x,
            )

    same(pair, calls)


def test_activations_of_any_kind_have_defined_results(pair: tuple[KernelSet, KernelSet]) -> None:
    def calls(kernels: KernelSet) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(2)
        values = (rng.standard_normal((12, 96)) * 10.0 ** rng.integers(-44, 38, (12, 1))).astype(np.float32)
        values[3, 5], values[4, 90], values[5, 33], values[6] = np.nan, np.inf, -np.inf, 0
        for x in (kernels.quantise(values), kernels.quantise(values, k=128)):
            yield from x.arrays
        fine = kernels.refine(values, kernels.quantise(values), 1.0)
        assert fine.fine is not None
        yield from (fine.sums, *vars(fine.fine).values())
        for count in range(1, 36):
            yield kernels.to_bf16(values.reshape(-1)[:count].copy())

    same(pair, calls)


def test_rows_of_any_width_stay_inside_their_arrays(pair: tuple[KernelSet, KernelSet]) -> None:
    def calls(kernels: KernelSet) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(3)
        for width in (*range(1, 36), 100):
            x, other, weight = rng.standard_normal((3, width)).astype(np.float32)
            for residual in (None, other):
                for in_place in (False, True):
                    yield from kernels.rms_norm(x, weight, 1e-6, residual, in_place=in_place)
            yield from (kernels.gated(x * 30, other, kind) for kind in GATES)
            yield np.array(kernels.argmax(x))
            cos, sin = rng.standard_normal((2, width)).astype(np.float32)
            heads = rng.standard_normal((2, 2 * width + 2)).astype(np.float32)
            yield kernels.rope(heads, cos, sin)
            yield kernels.rope(heads, cos, sin, interleaved=True)
        yield from (kernels.gated(every_exponent(), np.ones(512, np.float32), kind) for kind in GATES)

    same(pair, calls)


def every_exponent() -> F32:
    return (np.arange(512, dtype=np.uint32) << 23 | 0x2AAAAA).view(np.float32)


@pytest.mark.parametrize(
    "options", [{}, {"window": 40}, {"softcap": 3.0}, {"sinks": np.array([0, 1, 2, 3, 4], np.float32)}]
)
def test_attention_stays_inside_the_pool_and_its_scratch(
    pair: tuple[KernelSet, KernelSet], options: dict[str, object]
) -> None:
    def calls(kernels: KernelSet) -> Iterator[np.ndarray]:
        for length, head_dim, block_size in ((1, 16, 16), (17, 48, 16), (127, 64, 64), (129, 80, 32), (300, 256, 16)):
            rng = np.random.default_rng(length)
            sequence = random_sequence(rng, length, head_dim)
            own = rng.standard_normal((5, head_dim)).astype(np.float32)
            positions = [max(0, length - 5 + i) for i in range(5)]
            case = unit(rng, sequence, own, positions, block_size=block_size, spare=0, **options)  # type: ignore[arg-type]
            yield kernels.attention(case)
            yield kernels.attention(case, in_place=True)

    same(pair, calls)


def test_sampling_stays_inside_its_arrays(pair: tuple[KernelSet, KernelSet]) -> None:
    def calls(kernels: KernelSet) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(7)
        shapes = [
            Draw(), Draw(temperature=0.0, logprobs=3), Draw(target=0, logprobs=0), Draw(min_p=0.2), Draw(top_k=3),
            Draw(top_p=0.9), Draw(top_p=0.999, temperature=9.0), Draw(top_k=60, top_p=0.5, logprobs=99),
            Draw(bias={0: -np.inf}, output=[0, 0], presence=1.0), Draw(allowed=frozenset({0})),
        ]  # fmt: skip
        for vocab in (1, 2, 31, 63, 64, 65, 100, 1000):
            logits = (rng.standard_normal((4, vocab)) * [[0], [1], [5], [50]]).astype(np.float32)
            logits[1, vocab // 2], logits[3, vocab // 3] = -np.inf, 3e38
            yield kernels.maxima(logits[2].copy())
            yield kernels.mask(logits[2].copy(), rng.integers(0, 2**32, -(-vocab // 32), np.uint32))
            yield kernels.weigh(logits[2].copy(), float(logits[2].max()), 2.0, 1024.0)[0]
            draws = [replace(shape, row=row, seed=row, vocab=vocab) for shape in shapes for row in range(4)]
            yield from vars(kernels.sample(logits, make_batch(draws), threads=3)).values()

    same(pair, calls)


def test_a_step_beyond_an_array_is_caught(sanitized: Library) -> None:
    """The tests above mean something: one output too many for its array does end the process."""
    runner = Runner(SANITIZED.command())
    small = np.zeros(15, np.float32)
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        KernelSet(runner, "generic")._run("gated", np.zeros(16, np.float32), np.zeros(16, np.float32), 16, 0, small)
