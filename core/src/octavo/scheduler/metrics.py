"""What the scheduler tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.kv import KVStats
from octavo.scheduler.latency import Latencies


@dataclass(frozen=True)
class SchedulerMetrics:
    """A snapshot between two steps."""

    running: int
    waiting: int
    preemptions: int
    """Since the start."""
    kv: KVStats
    token_budget: int
    """New tokens that the last step had room for: all that a step may have, fewer if a latency target cut a chunk."""
    inter_token: Latencies
    """From each token of a row to its next, as the engine's loop sees it."""
