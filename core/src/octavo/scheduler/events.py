"""What the scheduler reports: one event per choice that got tokens or ended in a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.platform.step import Floats
from octavo.step_plan import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(slots=True)
class TokenEvent:
    """New tokens of one choice, its end, or both. A value: not changed once it has left the engine.

    (Not frozen: a frozen dataclass takes three times as long to make, and a step makes hundreds.)
    """

    request_id: str
    index: int
    """Which of the request's n choices."""
    token_ids: tuple[int, ...]
    """New tokens, the stop token included; empty when the choice ended without one."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """Beside ``token_ids`` where the request asked for logprobs."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The id among ``stop_token_ids`` that ended the choice; ``None`` for an end-of-sequence token."""
    complete: bool = False
    """It ended with "stop" because its constraint is satisfied: its last token is no stop token, but belongs to the
    output."""
    error: str | None = None
    refused: bool = False
    """It ended with "error" because its request lets no token come next: the client's mistake, and not the engine's."""
    param: str | None = None
    """The request field at fault, where it was refused."""
    cached_tokens: int = 0
    """Prompt tokens that a prefix hit saved."""
    pooled: Floats | None = None
    """The prompt's vector, from models that make those in place of tokens."""
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """Once, with choice 0's first event, where asked for: every prompt token but the first."""
    left_engine: float | None = None
    """When the engine's thread let go of it (`time.monotonic`)."""
