"""The dialect: every op there is, by name."""

from octavo.graph.ops.attention import ATTENTION, ROPE
from octavo.graph.ops.collective import ALL_GATHER, ALL_REDUCE
from octavo.graph.ops.elementwise import ACTIVATION, ADD, GATED_ACTIVATION, MUL, POOL, SCALE, SOFTCAP, TAKE_ROWS
from octavo.graph.ops.linear import EMBED, LINEAR, MAP_IDS
from octavo.graph.ops.norm import LAYER_NORM, RMS_NORM
from octavo.graph.ops.spec import Call, Case, Cost, Kernel, KVCache, OpSpec, Sizes

OPS: dict[str, OpSpec] = {
    op.name: op
    for op in (
        MAP_IDS, EMBED, LINEAR, RMS_NORM, LAYER_NORM, ROPE, ATTENTION, GATED_ACTIVATION, ACTIVATION,
        ADD, MUL, SCALE, SOFTCAP, TAKE_ROWS, POOL, ALL_REDUCE, ALL_GATHER,
    )
}  # fmt: skip

__all__ = ["OPS", "Call", "Case", "Cost", "KVCache", "Kernel", "OpSpec", "Sizes"]
