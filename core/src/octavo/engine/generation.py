"""What a checkpoint's generation_config.json means for requests that leave a field out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import CheckpointError, RequestError
from octavo.sampling import SamplingParams

FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")
"""The keys that are defaults of requests; ``max_new_tokens`` is that of ``max_tokens`` in conversations."""
_CHANGE_TEXT = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "constraints",
    "diversity_penalty",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "length_penalty",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "penalty_alpha",
    "sequence_bias",
    "stop_strings",
    "suppress_tokens",
    "top_h",
    "typical_p",
}
"""Keys of transformers' GenerationConfig (5.x) that change what is generated and that requests get nothing of here."""
_AS_IF_ABSENT: tuple[Any, ...] = (None, 0, 1, False, [], {})
"""Values of those that ask for nothing, as 0 n-grams, 1 beam and a cutoff of 0.0 do."""


@dataclass(frozen=True)
class GenerationDefaults:
    """The fields of generation_config.json that are applied, and one line on them, empty where nothing is to be said.

    What ends a sequence is not among them: it belongs to the model, and counts in any case.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""

    def params(self) -> SamplingParams:
        """Parameters of a request that leaves all of them out."""
        own = dict(self.fields)
        limit = {"max_tokens": own.pop("max_new_tokens")} if "max_new_tokens" in own else {}
        return SamplingParams(**own, **limit)


def generation_defaults(config: Mapping[str, Any], path: Path, wanted: str) -> GenerationDefaults:
    """The defaults of the checkpoint at ``path`` with this generation_config.json; ``wanted`` is the setting
    (`octavo.config.GENERATION_CONFIGS`). Raises CheckpointError for a value that no request could have.
    """
    found = {name: config[name] for name in FIELDS if config.get(name) is not None}
    if wanted != "auto":
        return GenerationDefaults({}, "generation_config.json is not applied (--generation-config)" if found else "")
    made = GenerationDefaults(found, _told(found, config))
    try:
        made.params()
    except RequestError as error:
        key = "max_new_tokens" if error.param == "max_tokens" else error.param
        raise CheckpointError(
            f"{path}: generation_config.json has {key} {found.get(key or '')!r}: {error}; mend it, or start with "
            "--generation-config none"
        ) from error
    return made


def _told(found: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    ignored = sorted(key for key in _CHANGE_TEXT & config.keys() if config[key] not in _AS_IF_ABSENT)
    lines = []
    if found:
        values = ", ".join(f"{name} {value}" for name, value in found.items())
        lines.append(
            f"defaults of requests from generation_config.json: {values} (--generation-config none ignores them)"
        )
    if ignored:
        lines.append(f"not applied of generation_config.json: {', '.join(ignored)}")
    return "; ".join(lines)
