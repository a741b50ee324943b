"""What a request may ask of a vector, or a score, that a model makes of its text; and how vectors are compared."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from octavo.errors import RequestError

Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PoolingParams:
    """Parameters of an embedding or a score; frozen and validated.

    ``dimensions`` cuts an embedding to its first elements, for models that were trained for that (Matryoshka).
    ``use_activation`` is whether an embedding gets length 1, and a cross-encoder's score goes through its sigmoid;
    ``None`` is as the model says. Raises RequestError.
    """

    dimensions: int | None = None
    use_activation: bool | None = None

    def __post_init__(self) -> None:
        if self.dimensions is None:
            return
        value: object = self.dimensions
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
            raise RequestError(f"dimensions must be an integer of at least 1, not {value!r}", param="dimensions")


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


def truncation(asked: int | None, context: int) -> int | None:
    """The limit that ``truncate_prompt_tokens`` means: -1 is the context. Raises RequestError."""
    if asked is None:
        return None
    if asked == -1:
        return context
    if not 1 <= asked <= context:
        raise RequestError(
            f"truncate_prompt_tokens must be -1 (as long as the model reads) or in [1, {context}], not {asked!r}",
            param="truncate_prompt_tokens",
        )
    return asked
