"""What is particular to the sets for 64-bit Arm: which processor is given which, and how they agree among themselves.

Runs in an emulator, on an Arm machine too: a machine has one processor only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from native.build import aarch64 as aarch64_build
from native.kernels import BEST_FIRST, LEAST_ARM, KernelSet, Quantised
from native.library import Library, Runner
from native.numbers16 import F32, from_bf16, to_bf16
from native.sets import arm_missing, leave_out
from native.weights import FORMATS, QUANTIZED, plain_weights, random_weights

if missing := arm_missing():
    leave_out(missing, module=True)

Emulated = Callable[[str], Library]

ARM_SETS = BEST_FIRST["aarch64"]
"""Best first."""


def on(aarch64: Emulated, name: str) -> KernelSet:
    """A set on the least processor that runs it."""
    return KernelSet(aarch64(LEAST_ARM[name]), name)


@pytest.mark.parametrize(
    ("processor", "best"),
    [
        ("cortex-a53", "neon"),
        ("cortex-a72", "neon"),  # Raspberry Pi 4
        ("a64fx", "neon"),
        ("cortex-a76", "neon_dotprod"),  # Raspberry Pi 5
        ("neoverse-n1", "neon_dotprod"),
        ("max", "neon_i8mm"),
    ],
)
def test_a_processor_is_given_the_best_set_that_it_runs_and_no_better_one(
    aarch64: Emulated, processor: str, best: str
) -> None:
    library = aarch64(processor)
    at = ARM_SETS.index(best)
    for name in ARM_SETS[:at]:
        with pytest.raises(LookupError):
            KernelSet(library, name)
    found = [library.call("octavo_kernel_set", np.frombuffer(f"{n}\0".encode(), np.uint8)) for n in ARM_SETS[at:]]
    assert all(found)
    assert library.call("octavo_kernel_set", np.frombuffer(b"\0", np.uint8)) == found[0]


@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 15, 16, 17, 18])
def test_quantized_products_are_the_same_bits_in_every_set(aarch64: Emulated, format: str, rows: int) -> None:
    """Alone or in pairs, by dot products or without: the integers are exact, and the floats take the same steps."""
    rng = np.random.default_rng(rows)
    weights = random_weights(rng, format, 40, 768)
    x = rng.standard_normal((rows, 768)).astype(np.float32)
    x[1:, 100] = np.where(np.arange(1, rows) % 3 == 0, np.nan, x[1:, 100])
    sets = [on(aarch64, name) for name in ARM_SETS[:-1]] + [KernelSet(aarch64("max"), "generic")]
    packed, fed = sets[0].pack(weights), sets[0].quantise(x)
    first, *others = (kernels.matmul(weights, packed, fed) for kernels in sets)
    assert np.isfinite(first[:, :40]).all(1).tolist() == [row == 0 or row % 3 != 0 for row in range(rows)]
    for other in others:
        assert np.array_equal(first, other, equal_nan=True)


@pytest.mark.parametrize("name", ARM_SETS[:-1])
@pytest.mark.parametrize("format", FORMATS)
def test_rows_may_lie_anywhere(aarch64: Emulated, name: str, format: str) -> None:
    """Rows of a stride that is no multiple of a register, in arrays that end where a page does, so begin anywhere."""
    kernels = on(aarch64, name)
    rng = np.random.default_rng(3)
    weights = random_weights(rng, format, 16, 256)
    x = rng.standard_normal((5, 256)).astype(np.float32)
    packed = kernels.pack(weights)
    if format in QUANTIZED:
        narrow, wide = kernels.quantise(x), kernels.quantise(x, k=288)
        wide = Quantised(wide.codes, *(np.nan_to_num(a) for a in (wide.scales, wide.sums)), wide.half_sums)
        assert kernels.matmul(weights, packed, wide).tobytes() == kernels.matmul(weights, packed, narrow).tobytes()
        return
    held = kernels.to_bf16(x) if format == "bf16" else x
    padded = np.full((5, 263), 0x7FC1 if format == "bf16" else np.nan, held.dtype)
    padded[:, :256] = held
    assert kernels.matmul(weights, packed, padded).tobytes() == kernels.matmul(weights, packed, held).tobytes()


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 6, 7, 31, 33, 62, 63, 97])
def test_bf16_products_of_any_width_take_their_inputs_and_no_others(aarch64: Emulated, rows: int, inputs: int) -> None:
    """Small whole numbers, whose sums are exact in any order; behind each row is a NaN."""
    rng = np.random.default_rng(inputs)
    weights = plain_weights("bf16", rng.integers(-9, 10, (21, inputs)).astype(np.float32))
    x = rng.integers(-9, 10, (rows, inputs)).astype(np.float32)
    stored = np.full((rows, inputs + 1), 0x7FC1, np.uint16)
    stored[:, :inputs] = to_bf16(x)
    kernels = on(aarch64, "neon_i8mm")
    assert np.array_equal(kernels.matmul(weights, kernels.pack(weights), stored)[:, :21], x @ weights.values.T)


def test_bf16_products_at_the_ends_of_the_range(aarch64: Emulated) -> None:
    """Sums stay finite as long as float32 could hold them, and become infinite, not the largest number, beyond."""
    largest = from_bf16(np.array([0x7F7F], np.uint16))[0]
    values = np.zeros((5, 8), np.float32)
    values[0, 0] = values[1, 0] = values[1, 1] = values[2, 3] = values[3, 2] = largest
    values[3, 3], values[4, 5] = -largest, np.inf
    with np.errstate(over="ignore"):
        weights = plain_weights("bf16", values)
    kernels = on(aarch64, "neon_i8mm")
    x: F32 = np.ones((3, 8), np.float32)
    x[1], x[2] = -1, 0.5
    with np.errstate(over="ignore"):
        wanted = np.stack([[s * largest, np.inf * s if abs(s) == 1 else largest, s * largest, 0, np.inf * s]
                           for s in (np.float32(1), np.float32(-1), np.float32(0.5))])  # fmt: skip
    made = kernels.matmul(weights, kernels.pack(weights), to_bf16(x))[:, :5]
    assert np.array_equal(made, wanted.astype(np.float32))


def test_a_step_beyond_an_array_is_caught(aarch64: Emulated) -> None:
    """The emulated tests mean something: one output too many for its array ends the process."""
    aarch64("max")  # or the test is skipped
    kernels = KernelSet(Runner(aarch64_build("max").command()), "neon")
    row = np.zeros(16, np.float32)
    with pytest.raises(AssertionError, match="the runner ended"):
        kernels._run("gated", row, row.copy(), 16, 0, np.zeros(15, np.float32))
