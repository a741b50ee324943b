"""Which family runs a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.models.bert import BERT, ROBERTA
from octavo.models.family import Family
from octavo.models.fields import shown
from octavo.models.gemma3 import GEMMA3
from octavo.models.llama import LLAMA, MISTRAL
from octavo.models.qwen2 import QWEN2
from octavo.models.qwen3 import QWEN3

BUILT_IN: tuple[Family, ...] = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3, BERT, ROBERTA)


def family_for(config: Mapping[str, Any], plugins: Sequence[object] = ()) -> Family:
    """The family that claims one of ``config["architectures"]``.

    ``plugins`` are what the ``octavo_models`` hook returned; families among it are asked before the built-in ones.
    Raises UnknownArchitecture with the known names if nobody claims it.
    """
    families = (*(plugin for plugin in plugins if isinstance(plugin, Family)), *BUILT_IN)
    wanted = config.get("architectures") or ()
    if not isinstance(wanted, list | tuple) or not all(isinstance(name, str) for name in wanted):
        raise CheckpointError(f"config.json: architectures is {shown(wanted)}; it must be a list of names")
    for architecture in wanted:
        for family in families:
            if architecture in family.architectures:
                return family
    known = ", ".join(dict.fromkeys(name for family in families for name in family.architectures))
    named = f"architecture {', '.join(map(str, wanted))} is not supported" if wanted else "no architecture is named"
    raise UnknownArchitecture(f"config.json: {named}; known: {known}")
