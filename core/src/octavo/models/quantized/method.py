"""From quantization_config to the method that reads the folder's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from octavo.errors import CheckpointError
from octavo.models.quantized import auto_round, awq, compressed_tensors, gptq
from octavo.models.quantized.options import CURE
from octavo.models.quantized.parts import Parts, QuantizedWeight


class Method(Protocol):
    """How one kind of folder stores quantized weights. A module that it left alone has an ordinary ``weight``."""

    @property
    def marker(self) -> str:
        """The tensor that quantized modules have and no others."""
        ...

    @property
    def parts(self) -> frozenset[str]:
        """The tensors of a quantized module, its bias apart."""
        ...

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """The weight of a quantized module; CheckpointError if its tensors do not fit together."""
        ...


_METHODS: Mapping[str, Callable[[Mapping[str, Any]], Method]] = {
    "auto-round": auto_round.parse,
    "awq": awq.parse,
    "compressed-tensors": compressed_tensors.parse,
    "gptq": gptq.parse,
    "intel/auto-round": auto_round.parse,
}


def quantization_method(config: Mapping[str, Any]) -> Method | None:
    """What config.json says about quantization: None for a plain checkpoint.

    CheckpointError names the first thing that cannot be honoured, why, and what to use instead.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, Mapping) else {}):
        options = part.get("quantization_config")
        if not options:
            continue
        name = options.get("quant_method") if isinstance(options, Mapping) else None
        if not isinstance(name, str) or name not in _METHODS:
            raise CheckpointError(
                f"quantization_config: quant_method {name!r} is not supported; {', '.join(_METHODS)} are; {CURE}"
            )
        return _METHODS[name](options)
    return None
