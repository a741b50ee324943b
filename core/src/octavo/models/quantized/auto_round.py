"""AutoRound's own folders: GPTQ's or AWQ's tensors, as ``packing_format`` says.

"auto_round:auto_gptq" (also the writer's choice for symmetric weights) stores zero points less one, "auto_round",
"auto_round:exllamav2" and "auto_round:gptqmodel" as they are, "auto_round:auto_awq" has AutoAWQ's tensors.
Source: AutoRound's export_to_autoround.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.models.quantized.awq import Awq, awq
from octavo.models.quantized.gptq import Gptq, gptq
from octavo.models.quantized.options import Options

_GPTQ = ("auto_round:auto_gptq", "auto_round:gptq")
_GPTQ_V2 = ("auto_round", "auto_round:exllamav2", "auto_round:gptqmodel", "auto_round:auto_gptqmodel")
_AWQ = ("auto_round:auto_awq", "auto_round:awq")


def parse(options: Mapping[str, Any]) -> Gptq | Awq:
    """The method that ``quantization_config`` describes; CheckpointError if it is neither of these."""
    found = Options("auto-round", options)
    packing = found.one_of("packing_format", (*_GPTQ, *_GPTQ_V2, *_AWQ), _GPTQ[0])
    if packing in _AWQ:
        return awq(found)
    return gptq(found, "gptq" if packing in _GPTQ else "gptq_v2", reordered=False)
