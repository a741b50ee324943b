"""What becomes of an output that may be longer than the context has room for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from octavo.errors import ContextLengthExceeded
from octavo.sampling import SamplingParams

OverContext: TypeAlias = Literal["error", "truncate"]
"""``error``: a request for more tokens than fit is refused. ``truncate``: its output ends with the context."""


def fitted(params: SamplingParams, prompt_tokens: int, context: int, over: OverContext) -> SamplingParams:
    """The parameters with a ``max_tokens`` that the context has room for.

    Raises ContextLengthExceeded(param="max_tokens") where the limit is more than that and must not be changed. A prompt
    that leaves no room at all is the engine's to refuse.
    """
    room = context - prompt_tokens
    if params.max_tokens is None or params.max_tokens <= room or room < 1:
        return params
    if over == "truncate":
        return replace(params, max_tokens=room)
    raise ContextLengthExceeded(
        f"'max_tokens' is {params.max_tokens}, and this model's maximum context length is {context} tokens, of which "
        f"the prompt takes {prompt_tokens}: at most {room} are left. Lower it, shorten the prompt, or send "
        "'context_overflow': \"truncate\" for an output that ends with the context.",
        param="max_tokens",
    )
