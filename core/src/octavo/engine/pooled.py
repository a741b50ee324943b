"""From what a model pools to what a request gets: cut, normalised, activated, compared.

A device brings the vector as the graph makes it; this is host work, done for each request as it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.prompts import Prompt, prompt_ids
from octavo.errors import RequestError
from octavo.models import Pooling
from octavo.pooling import PoolingParams
from octavo.sampling import SamplingParams
from octavo.text import Tokenizer

Vector = npt.NDArray[np.float32]

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


def normalized(vector: Vector) -> Vector:
    """The vector at length 1; zeros stay zeros."""
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / np.float32(length)).astype(np.float32) if length > 0 else vector


def cosine(a: Vector, b: Vector) -> float:
    """The cosine of the angle between two vectors; 0 if one is zero."""
    return float(np.dot(normalized(a).astype(np.float64), normalized(b).astype(np.float64)))


def paired(first: Any, second: Any) -> list[tuple[str, str]]:
    """Pairs of texts: one with many, or as many with as many. Raises RequestError."""
    left, right = ([text] if isinstance(text, str) else list(text) for text in (first, second))
    if len(left) == 1:
        left *= len(right)
    if len(left) != len(right) or not left:
        raise RequestError(
            f"{len(left)} texts cannot be paired with {len(right)}; give one and many, or as many as there are"
        )
    if not all(isinstance(text, str) for text in (*left, *right)):
        raise RequestError("the texts of a pair must be strings")
    return list(zip(left, right, strict=True))


def folded(ids: Sequence[int], types: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Ids that tell the kind of each token too; see `octavo.models.ModelConfig.token_types`."""
    return tuple(token + kind * vocab_size for token, kind in zip(ids, types, strict=True))


def limited(prompt: Prompt, tokenizer: Tokenizer, limit: int | None) -> tuple[int, ...]:
    """A prompt's ids, the first ``limit`` of them; of a text what the model wants around it is kept."""
    text = prompt.get("prompt") if not isinstance(prompt, str) and hasattr(prompt, "get") else prompt
    if limit is not None and isinstance(text, str):
        return tuple(tokenizer.encode_pair(text, None, limit=limit)[0])
    return prompt_ids(prompt, tokenizer)[:limit]


def truncation(asked: int | None, context: int) -> int | None:
    """The limit that ``truncate_prompt_tokens`` means: -1 is the context. Raises RequestError."""
    if asked is None:
        return None
    if asked == -1:
        return context
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= context:
        raise RequestError(
            f"truncate_prompt_tokens must be -1 (as long as the model reads) or in [1, {context}], not {asked!r}",
            param="truncate_prompt_tokens",
        )
    return asked


def _sigmoid(x: Vector) -> Vector:
    small = np.exp(-np.abs(x))
    return (np.where(x >= 0, 1, small) / (1 + small)).astype(np.float32)
