"""How the scheduler is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octavo.errors import ConfigError
from octavo.platform.buckets import BucketSet
from octavo.platform.limits import Limits

Policy = Literal["fcfs", "priority"]


@dataclass(frozen=True)
class SchedulerConfig:
    """Settings of one scheduler; raises ConfigError for a value out of range."""

    max_num_seqs: int
    """Sequences that run at the same time."""
    max_num_batched_tokens: int
    """New tokens in one step, prompt chunks and decodes together."""
    max_model_len: int
    """Tokens of one sequence, prompt and output."""
    limits: Limits = field(default_factory=Limits)
    """What the platform cannot do."""
    buckets: BucketSet | None = None
    """The shapes of a step; by default those of ``limits.buckets``."""
    policy: Policy = "fcfs"
    """``priority`` puts a request's priority before its arrival, strictly: while more urgent requests keep
    coming, the others wait."""
    max_waiting: int | None = None
    """Requests that may wait; one more is refused."""
    max_waiting_tokens: int | None = None
    """Tokens that the waiting requests may have together; one that would make it more is refused, unless none waits."""
    whole_prompts: bool = False
    """A prompt is computed in one step, and nothing of it is found in the cache."""
    itl_target: float | None = None
    """Seconds that a step in which rows decode should not exceed: its prompt chunks are chosen by it."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            _at_least_one(name, getattr(self, name), f" (--{name.replace('_', '-')})")
        for name in ("max_waiting", "max_waiting_tokens"):
            if getattr(self, name) is not None:
                _at_least_one(name, getattr(self, name))
        if self.itl_target is not None and not self.itl_target > 0:
            raise ConfigError(f"itl_target must be above 0, not {self.itl_target} (--itl-target)")
        for name in ("max_rows", "max_tokens", "max_context", "max_volume", "max_prefill_rows", "chunk_multiple"):
            value = getattr(self.limits, name)
            if value is not None:
                _at_least_one(f"the platform's limit {name}", value)
        if self.policy not in ("fcfs", "priority"):
            raise ConfigError(f"scheduling policy {self.policy!r} is unknown; choose 'fcfs' or 'priority'")


def _at_least_one(name: str, value: int, knob: str = "") -> None:
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, not {value}{knob}")
