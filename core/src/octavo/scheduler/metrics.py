"""What the scheduler tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.kv import KVStats


@dataclass(frozen=True)
class SchedulerMetrics:
    """A snapshot between two steps."""

    running: int
    waiting: int
    preemptions: int
    """Since the start."""
    kv: KVStats

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that sequences hold, 0 to 1."""
        return self.kv.used / self.kv.total
