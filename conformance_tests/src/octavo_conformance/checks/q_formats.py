"""Q: quantized weights. A check for each format there is: qnt.FORMAT.WHAT."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.quant import WeightTensor, format_named
from octavo_conformance.check import Body, check
from octavo_conformance.judge import lowp, measure, oracle64, quant
from octavo_conformance.judge.floats import int8_groups
from octavo_conformance.probe import Probe
from octavo_conformance.steps import every_row
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict


def tensor(matrix: quant.Quantized) -> WeightTensor:
    """As the engine hands it to a platform."""
    return WeightTensor(format_named(matrix.format), matrix.values.shape, matrix.data)


def _budget(format: str) -> Body:
    def body(t: Target) -> Iterator[Verdict]:
        stored_as = t.linear_input(format)
        for name, rows in (("decode", 1), ("few rows", 7), ("many rows", 64)):
            rng = t.rng(name)
            matrix = quant.FORMATS[format](rng, 256, 512)
            for inputs in ("exact codes", "any numbers"):
                x = t.stored(rng.outliers(rows, 512))
                if inputs == "exact codes" and stored_as.startswith("int8x"):
                    x = t.stored(_exact(x, int(stored_as.removeprefix("int8x"))))
                p = Probe(t, "quantized")
                (out,) = t.play(p.logits(p.build.take_rows(p.rows("x", x)), tensor(matrix)), [every_row(rows)]).results
                (exact,) = oracle64.linear(x, [matrix.values])
                (own,) = lowp.linear(x, [matrix.values], dtype=t.dtype, stored_as=stored_as)
                halves = matrix.values.reshape(256, -1, 32)
                wrong = {
                    "scales moved by one group": oracle64.linear(x, [np.roll(halves, 1, 1).reshape(256, 512)])[0],
                    "eight inputs dropped": oracle64.linear(x[:, 8:], [matrix.values[:, 8:]])[0],
                }
                yield measure.budget(f"{name}, {inputs}", out, exact, own, t.dtype, plants=wrong)

    return body


def _exact(x: np.ndarray, group: int) -> np.ndarray:
    """Numbers near ``x`` that int8 codes hold exactly: each group's scale is a power of two, its largest code 127."""
    codes = int8_groups(x, group)
    scales = 2.0 ** np.round(np.log2(np.maximum(codes.scales.astype(np.float64), 2.0**-20)))
    return codes.codes * np.repeat(scales, group, axis=-1)


for _format in quant.FORMATS:
    check(
        f"qnt.{_format}.gemm_budget", level="Q", module=f"Q{_format}", since="1.0", requires=(f"format:{_format}",),
        rules=("R",), kills=("M24",), cost=1.0,
        spec=f"""A linear map of {_format} weights MUST multiply by the very numbers that their codes and scales mean,
        with an error no larger than that of its input as the platform declares to store it; of inputs that it stores
        exactly, than that of float32 sums.""",
    )(_budget(_format))  # fmt: skip
