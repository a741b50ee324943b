"""Are the tiers right? What right kernels lose at most, and how far from it the nearest wrong one is.

`calibrations.lock` holds the answer, a line for each kind of kernel and dtype:

    kernel | dtype | legal rms, largest, row, bound | tier | separation | nearest wrong variant

``legal`` are the largest ratios to the yardstick over every legal order of summation, shape and seed, and the largest
to the derived bound; ``tier`` is the strictest that lets all of it through with a quarter to spare; ``separation`` says
how many times the default tier's limit the nearest wrong variant measures, in the measurement that shows it best. The
default tier must let every legal variant through with that margin, and every wrong one must measure at least
`SEPARATION` times its limit; where not, the case's shape is redesigned or the yardstick is, never the limit alone.
Written by ``octavo conformance calibrate --write``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from octavo_conformance import suite_version
from octavo_conformance.judge.tol import NOISE, TIERS, Tier, decide
from octavo_conformance.judge.variants import kernels
from octavo_conformance.suite.lock import rules_digest
from octavo_conformance.suite.status import Status
from octavo_conformance.suite.verdict import Metrics

FILE = "calibrations.lock"
MARGIN = 1.25
"""How much more than the worst legal variant a limit allows."""
SEPARATION = 1.5
"""How many times the limit the nearest wrong variant must measure."""
DEFAULT = "A1"
SEEDS = 4
_SAME = 0.02
"""Relative difference by which a measurement may move from one system's exp and matmul to another's."""


@dataclass(frozen=True)
class Ratios:
    """Error over the yardstick's: root of the mean square, largest, row; and over the derived bound (0 without)."""

    rms: float
    largest: float
    row: float
    bound: float = 0.0

    @staticmethod
    def of(metrics: Metrics) -> Ratios:
        """From the measurements of rule R, as the rule compares them."""
        few = 1 + NOISE / math.sqrt(metrics["of"])
        return Ratios(
            float(metrics["rms"] / (metrics["rms_reference"] * few)),
            float(metrics["largest"] / metrics["largest_reference"]), float(metrics["row_ratio"]),
            float(metrics.get("bound_ratio", 0.0)),
        )  # fmt: skip

    def worse(self, other: Ratios) -> Ratios:
        """The larger of each."""
        return Ratios(
            max(self.rms, other.rms), max(self.largest, other.largest), max(self.row, other.row),
            max(self.bound, other.bound),
        )  # fmt: skip

    def over(self, tier: Tier) -> float:
        """The worst ratio, in multiples of what the tier allows."""
        return max(self.rms / tier.rms, self.largest / tier.largest, self.row / tier.row, self.bound / tier.bound)

    def fits(self, tier: Tier) -> bool:
        """Whether a tier allows it with the margin; the bound is derived and needs none."""
        spare = Ratios(self.rms * MARGIN, self.largest * MARGIN, self.row * MARGIN, self.bound)
        return spare.over(tier) <= 1


@dataclass
class Calibration:
    """One kind of kernel in one dtype."""

    kernel: str
    dtype: str
    legal: Ratios = Ratios(0.0, 0.0, 0.0)
    separation: float = math.inf
    nearest: str = ""
    refused: list[str] = field(default_factory=list)
    """Legal variants that the default tier does not let through, and why."""

    @property
    def tier(self) -> str:
        """The strictest tier that lets every legal variant through."""
        fitting = [name for name, tier in TIERS.items() if self.legal.fits(tier)]
        return fitting[-1] if fitting else "none"

    @property
    def line(self) -> str:
        """As the lock has it."""
        ratios = f"{self.legal.rms:.3f} {self.legal.largest:.3f} {self.legal.row:.3f} {self.legal.bound:.3f}"
        return f"{self.kernel} | {self.dtype} | {ratios} | {self.tier} | {self.separation:.2f} | {self.nearest}"


def measure(*, quick: bool = False, told: Callable[[str], None] = lambda line: None) -> list[Calibration]:
    """Measure everything; ``told`` is given a line for each kind of kernel and dtype when it is done."""
    found: dict[tuple[str, str], Calibration] = {}
    for seed in range(1 if quick else SEEDS):
        for kernel, dtype, case in kernels(seed, quick=quick):
            entry = found.setdefault((kernel, dtype), Calibration(kernel, dtype))
            for name, right, verdict in case.measured():
                ratios = Ratios.of(verdict.metrics)
                if right:
                    entry.legal = entry.legal.worse(ratios)
                    status, reasons = decide(verdict, DEFAULT)
                    if status is not Status.PASS:
                        entry.refused.append(f"{name}: {'; '.join(reasons)}")
                elif ratios.over(TIERS[DEFAULT]) < entry.separation:
                    entry.separation, entry.nearest = ratios.over(TIERS[DEFAULT]), name
    done = sorted(found.values(), key=lambda c: (c.kernel, c.dtype))
    told(HEAD)
    for entry in done:
        told(_row(entry))
    return done


HEAD = f"{'kernel':<24}{'dtype':<7}{'legal rms':>10}{'largest':>9}{'row':>7}{'bound':>7}  tier  separation  nearest"


def _row(c: Calibration) -> str:
    return (
        f"{c.kernel:<24}{c.dtype:<7}{c.legal.rms:>10.2f}{c.legal.largest:>9.2f}{c.legal.row:>7.2f}{c.legal.bound:>7.2f}"
        f"  {c.tier:<4}{c.separation:>12.1f}  {c.nearest}"
    )


def problems(measured: Iterable[Calibration]) -> list[str]:
    """Why the tiers are not right, a sentence each."""
    found = []
    for c in measured:
        found += [f"{c.kernel} {c.dtype}: a legal variant is refused: {why}" for why in c.refused]
        if not c.legal.fits(TIERS[DEFAULT]):
            found.append(f"{c.kernel} {c.dtype}: tier {DEFAULT} leaves legal variants no margin of {MARGIN:g}")
        if c.separation < SEPARATION:
            found.append(
                f"{c.kernel} {c.dtype}: {c.nearest} measures {c.separation:.2f} times the limit of {DEFAULT}, "
                f"{SEPARATION:g} wanted"
            )
    return found


def text(measured: Iterable[Calibration]) -> str:
    """The lock."""
    return "\n".join([f"#suite {suite_version()}", f"#rules {rules_digest()}", *(c.line for c in measured), ""])


def installed() -> str:
    """The lock that this distribution came with."""
    return resources.files("octavo_conformance.suite").joinpath(FILE).read_text(encoding="utf-8")


def differences(measured: Iterable[Calibration], lock: str, *, whole: bool = True) -> list[str]:
    """Where the measurements are not as the lock has them. A part of them (not ``whole``) may not be worse."""
    lines = lock.splitlines()
    found = [] if f"#rules {rules_digest()}" in lines else ["the rules are not those that were calibrated"]
    locked = {tuple(cells[:2]): cells for cells in ([c.strip() for c in x.split("|")] for x in lines if "|" in x)}
    entries = list(measured)
    found += [
        f"{' '.join(key)} is locked and was not measured"
        for key in locked.keys() - {(c.kernel, c.dtype) for c in entries}
    ]
    for c in entries:
        cells = locked.get((c.kernel, c.dtype))
        if cells is None:
            found.append(f"{c.kernel} {c.dtype} is not locked")
            continue
        legal = Ratios(*map(float, cells[2].split()))
        moved = _moved(c, legal, float(cells[4]), whole)
        found += [
            f"{c.kernel} {c.dtype}: {what} is {now:.3f}, locked was {was:.3f}" for what, (now, was) in moved.items()
        ]
    return found


def _moved(c: Calibration, legal: Ratios, separation: float, whole: bool) -> Mapping[str, tuple[float, float]]:
    pairs = {
        "rms": (c.legal.rms, legal.rms), "largest": (c.legal.largest, legal.largest), "row": (c.legal.row, legal.row),
        "bound": (c.legal.bound, legal.bound), "separation": (c.separation, separation),
    }  # fmt: skip
    moved = {}
    for what, (now, was) in pairs.items():
        slack = _SAME * was + 1e-3
        worse = was - now if what == "separation" else now - was
        if (abs(now - was) if whole else worse) > slack:
            moved[what] = (now, was)
    return moved
