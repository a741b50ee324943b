"""The runner: plans in, steps on a device, results out; and what sampling means."""

from octavo.runner.batch import Batch
from octavo.runner.runner import Pending, Runner, kv_layout, load_runner
from octavo.runner.sampler import HostSampler

__all__ = ["Batch", "HostSampler", "Pending", "Runner", "kv_layout", "load_runner"]
