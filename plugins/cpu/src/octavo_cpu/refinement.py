"""How exactly int8 activations stand for what they are codes of.

Eight bits for 32 activations lose what their largest makes them lose; that is what other engines' quantized products
lose too. A group may have a second plane of codes, 256 times finer, at the cost of one more product. A tenth of the
groups, those with the large numbers, make four fifths of the error. How many get it is for people to choose.
"""

from __future__ import annotations

import math
import os

from octavo.errors import ConfigError

VARIABLE = "OCTAVO_CPU_REFINE"
DEFAULT = math.inf
OUTPUT_ABOVE = 1.0
"""The threshold for what the output matrix multiplies, where nothing else is refined: nearly all of the gain for a
third of the cost (decision 0019)."""


def refine_above() -> float | None:
    """A group is refined if its scale is above so many times the root of its row's mean square scale.

    0 refines all: 16-bit activations, at about twice the work of a product. A number refines all that the output matrix
    multiplies, too; ``inf``, the default, only that, above `OUTPUT_ABOVE`. ``None``, which is written ``none``, refines
    nothing. Raises ConfigError for anything but ``none`` and a number from 0 on.
    """
    raw = os.environ.get(VARIABLE, "")
    if not raw:
        return DEFAULT
    if raw == "none":
        return None
    try:
        threshold = float(raw)
    except ValueError:
        threshold = math.nan
    if not threshold >= 0:
        raise ConfigError(
            f"{VARIABLE} is {raw!r}; give a number from 0 (all refined) to inf (only for the output matrix), or none"
        )
    return threshold


def finer() -> bool:
    """Whether finer activations were asked for than the default's."""
    threshold = refine_above()
    return threshold is not None and math.isfinite(threshold)


def described(threshold: float | None) -> str:
    """The setting in words."""
    if threshold == 0:
        return "int16 in groups of 32"
    if threshold is None:
        return "int8 in groups of 32"
    if math.isinf(threshold):
        return "int8 in groups of 32, int16 for the output matrix where a group's step is over its row's"
    large = f"where a group's step is over {threshold:g} times its row's"
    return f"int8 in groups of 32, int16 for the output matrix and {large}"
