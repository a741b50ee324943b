"""The runner: plans in, steps on a device, results out; and what sampling means."""

from octavo.runner.batch import Batch
from octavo.runner.masks import TokenConstraint
from octavo.runner.plan import BlockUpdate, NewRow, StepPlan, StepResult, TokenLogprobs
from octavo.runner.runner import Pending, Runner, kv_layout, load_runner
from octavo.runner.sampler import HostSampler

__all__ = [
    "Batch", "BlockUpdate", "HostSampler", "NewRow", "Pending", "Runner", "StepPlan", "StepResult", "TokenConstraint",
    "TokenLogprobs", "kv_layout", "load_runner",
]  # fmt: skip
