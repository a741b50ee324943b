"""The tiers are calibrated: right kernels pass with room to spare, wrong ones are far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from octavo.errors import OctavoError
from octavo_conformance.cli import app
from octavo_conformance.judge import floats
from octavo_conformance.judge.rng import Rng
from octavo_conformance.judge.variants import ORDERS
from octavo_conformance.suite import calibrations
from octavo_conformance.suite.calibrations import Calibration, Ratios


@pytest.fixture(scope="module")
def quick() -> list[Calibration]:
    return calibrations.measure(quick=True)


def test_a_part_measured_again_is_no_worse_than_what_is_locked(quick: list[Calibration]) -> None:
    assert calibrations.problems(quick) == []
    assert calibrations.differences(quick, calibrations.installed(), whole=False) == []


def test_every_dtype_and_every_kernel_that_sums_is_locked(quick: list[Calibration]) -> None:
    assert {c.dtype for c in quick} == set(floats.UNIT)
    assert {c.kernel for c in quick} >= {"linear", "rms_norm", "layer_norm", "attention"}
    lines = [line for line in calibrations.installed().splitlines() if "|" in line]
    assert len(lines) == len(quick)


def test_what_moved_is_told(quick: list[Calibration]) -> None:
    first, *rest = quick
    worse = replace(first, legal=replace(first.legal, rms=9.0), separation=0.1)
    found = calibrations.differences([worse, *rest], calibrations.installed(), whole=False)
    assert [text.partition(" is ")[0] for text in found] == [
        f"{first.kernel} {first.dtype}: rms", f"{first.kernel} {first.dtype}: separation"
    ]  # fmt: skip
    assert "is locked and was not measured" in calibrations.differences(rest, calibrations.installed())[0]
    assert "rules are not those" in calibrations.differences(quick, "#rules 0", whole=False)[0]


def test_a_tier_without_a_margin_and_a_near_mutant_are_problems() -> None:
    legal = Ratios(1.3, 1.0, 1.0)
    tight = Calibration("linear", "f32", legal, separation=1.2, nearest="scaled", refused=["tree: rms error"])
    assert tight.tier == "A0"
    assert [text.partition(": ")[2] for text in calibrations.problems([tight])] == [
        "a legal variant is refused: tree: rms error",
        "tier A1 leaves legal variants no margin of 1.25",
        "scaled measures 1.20 times the limit of A1, 1.5 wanted",
    ]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("count", [1, 7, 32, 100])
def test_every_order_adds_every_term_once(name: str, count: int) -> None:
    """Small integers: any order gives the same sum, exactly."""
    terms = Rng("orders", name, count).integers(-50, 50, count, 3).astype(np.float64)
    np.testing.assert_array_equal(ORDERS[name](terms), terms.sum(0))


def test_what_is_measured_in_part_is_never_written() -> None:
    result = CliRunner().invoke(app, ["calibrate", "--quick", "--write"])
    assert isinstance(result.exception, OctavoError)
