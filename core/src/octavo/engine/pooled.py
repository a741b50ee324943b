"""From what a model pools to what a request gets: cut, normalised, activated, compared.

A device brings the vector as the graph makes it; this is host work, done for each request as it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.engine.prompts import Prompt, prompt_ids
from octavo.errors import RequestError
from octavo.models import Pooling
from octavo.pooling import PoolingParams, Vector, normalized
from octavo.sampling import SamplingParams
from octavo.text import Tokenizer

NOTHING_SAMPLED = SamplingParams(max_tokens=0, detokenize=False)
"""How the engine is asked for a prompt's vector: it computes the prompt, and draws nothing."""

TASKS: dict[str | None, frozenset[str]] = {
    None: frozenset({"generate"}),
    "embed": frozenset({"embed", "score"}),
    "score": frozenset({"score"}),
}
"""What a model answers, by the task of its `Pooling`: whoever embeds scores by cosine as well."""


@dataclass
class EmbeddingOutput:
    """A prompt's embedding. ``prompt`` is None if it was given as ids."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    embedding: Vector

    @property
    def outputs(self) -> EmbeddingOutput:
        """Itself, for scripts that read ``output.outputs.embedding``."""
        return self


@dataclass
class ScoreOutput:
    """How well two texts fit. ``prompt_tokens`` were read for it."""

    score: float
    prompt_tokens: int

    @property
    def outputs(self) -> ScoreOutput:
        """Itself, for scripts that read ``output.outputs.score``."""
        return self


def check_params(params: PoolingParams, pooling: Pooling) -> None:
    """Raise RequestError for a length that this model's vectors may not be cut to."""
    asked, allowed = params.dimensions, pooling.dimensions
    if asked is None or asked == pooling.width:
        return
    if allowed is None:
        raise RequestError(
            f"dimensions is {asked}, and this model's embeddings have {pooling.width}: it was not trained to be cut "
            "shorter (Matryoshka); leave it out",
            param="dimensions",
        )
    if (allowed and asked not in allowed) or asked > pooling.width:
        known = ", ".join(map(str, allowed)) if allowed else f"1 to {pooling.width}"
        raise RequestError(f"dimensions is {asked}; this model's embeddings have {known}", param="dimensions")


def finished(vector: Vector, params: PoolingParams, pooling: Pooling) -> Vector:
    """What a request gets of a vector that the engine brought."""
    activate = params.use_activation
    if pooling.task == "score":
        sigmoid = pooling.activation == "sigmoid" if activate is None else activate
        return _sigmoid(vector) if sigmoid else vector
    vector = vector[: params.dimensions]
    return normalized(vector) if (pooling.normalize if activate is None else activate) else vector


def folded(ids: Sequence[int], types: Sequence[int] | None, vocab_size: int, pooling: Pooling) -> tuple[int, ...]:
    """Ids that tell the kind of each token too; see `octavo.models.ModelConfig.token_types`. A model that knows one
    kind reads both texts of a pair as that, whatever its tokenizer says (RoBERTa).

    Raises RequestError for an id beyond the vocabulary, which would be taken for another kind.
    """
    wrong = next((token for token in ids if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise RequestError(f"the prompt has token id {wrong}; ids go from 0 to {vocab_size - 1}", param="prompt")
    if types is None or pooling.token_types == 1:
        return tuple(ids)
    return tuple(token + kind * vocab_size for token, kind in zip(ids, types, strict=True))


def limited(prompt: Prompt, tokenizer: Tokenizer, limit: int | None) -> tuple[int, ...]:
    """A prompt's ids, the first ``limit`` of them; of a text what the model wants around it is kept."""
    text = prompt.get("prompt") if not isinstance(prompt, str) and hasattr(prompt, "get") else prompt
    if limit is not None and isinstance(text, str):
        return tuple(tokenizer.encode_pair(text, None, limit=limit)[0])
    return prompt_ids(prompt, tokenizer)[:limit]


def _sigmoid(x: Vector) -> Vector:
    small = np.exp(-np.abs(x))
    y: Vector = (np.where(x >= 0, 1, small) / (1 + small)).astype(np.float32)
    return y
