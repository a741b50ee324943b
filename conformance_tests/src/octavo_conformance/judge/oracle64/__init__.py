"""The truth: every op from its meaning, in float64, on dense arrays.

Written from what the ops mean, not from Octavo's own numpy reference: two people's errors rarely agree. Attention works
on whole sequences and knows neither blocks nor steps. Inputs are taken exactly as they are stored.
"""

from octavo_conformance.judge.oracle64.attention import Attention, attention, attention_bound, visible
from octavo_conformance.judge.oracle64.ops import (
    ACTIVATIONS,
    activation,
    add,
    embed,
    erfc,
    gated_activation,
    layer_norm,
    linear,
    map_ids,
    mul,
    pool,
    rms_norm,
    scale,
    softcap,
    take_rows,
)
from octavo_conformance.judge.oracle64.rope import frequencies, rope

ORACLES = {
    "map_ids": map_ids, "embed": embed, "linear": linear, "rms_norm": rms_norm, "layer_norm": layer_norm, "rope": rope,
    "attention": attention, "gated_activation": gated_activation, "activation": activation, "add": add, "mul": mul,
    "scale": scale, "softcap": softcap, "take_rows": take_rows, "pool": pool,
}  # fmt: skip
"""By the dialect's names; a test sees that none is missing."""

__all__ = [
    "ACTIVATIONS", "ORACLES", "Attention", "activation", "add", "attention", "attention_bound", "embed", "erfc",
    "frequencies",
    "gated_activation", "layer_norm", "linear", "map_ids", "mul", "pool", "rms_norm", "rope", "scale", "softcap",
    "take_rows", "visible",
]  # fmt: skip
