"""The scheduler: requests in, one step at a time out, token events back."""

from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.events import FinishReason, TokenEvent
from octavo.scheduler.metrics import SchedulerMetrics
from octavo.scheduler.request import Request, Status
from octavo.scheduler.scheduler import Scheduler

__all__ = ["FinishReason", "Request", "Scheduler", "SchedulerConfig", "SchedulerMetrics", "Status", "TokenEvent"]
