"""What a request may ask of a vector, or a score, that a model makes of its text."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from octavo.errors import RequestError


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
        if isinstance(self.dimensions, bool) or not isinstance(self.dimensions, Integral) or self.dimensions < 1:
            raise RequestError(
                f"dimensions must be an integer of at least 1, not {self.dimensions!r}", param="dimensions"
            )
