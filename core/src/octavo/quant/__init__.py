"""Weight formats: what the stored codes mean, and how to turn them into numbers.

A weight keeps the format of its checkpoint all the way to the platform; dequantising is the
platform's choice. This package is the one place that says what a format's bytes mean.
"""

from octavo.quant.assemble import int4_format, int4_weight, int8_groups_format, int8_groups_weight, int8_weight
from octavo.quant.formats import BF16, F16, F32, FORMATS, WeightFormat, format_named
from octavo.quant.parts import take_part
from octavo.quant.tensor import WeightTensor, dequantise

__all__ = [
    "BF16", "F16", "F32", "FORMATS", "WeightFormat", "WeightTensor", "dequantise", "format_named",
    "int4_format", "int4_weight", "int8_groups_format", "int8_groups_weight", "int8_weight", "take_part",
]  # fmt: skip
