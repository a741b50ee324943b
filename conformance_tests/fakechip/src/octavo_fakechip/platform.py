"""The platform: what it says before the chip is opened."""

from __future__ import annotations

from dataclasses import replace

from octavo.platform import (
    Capabilities,
    Device,
    DeviceInfo,
    Plan,
    PlanRequest,
    PlatformInfo,
    Probe,
    Rank,
    Unsupported,
    negotiate_by_declaration,
)
from octavo.platform import Settings as Preferences
from octavo_fakechip.chip import FakeChip
from octavo_fakechip.habits import CAPABILITIES, LIMITS, NAME, VERSION, shapes
from octavo_fakechip.offline import OfflineCompiler
from octavo_fakechip.settings import Settings

_CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0", "faults": "1.0"}
_PREFERENCES = Preferences(max_num_seqs=16, max_num_batched_tokens=128)


class FakeChipPlatform:
    """Meets `octavo.platform.Platform`. ``settings`` are the environment's unless they are given."""

    # For checking others, so never chosen by itself.
    info = PlatformInfo(NAME, "Octavo", VERSION, "reference", _CONTRACT)

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings

    def probe(self) -> Probe:
        """Available wherever Python is."""
        return Probe(True, "an awkward chip that does not exist, to test with", (DeviceInfo("Fake Chip"),))

    def capabilities(self) -> Capabilities:
        """See `Platform.capabilities`."""
        return CAPABILITIES

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """See `Platform.negotiate`."""
        plan = negotiate_by_declaration(request, NAME, CAPABILITIES, LIMITS, _PREFERENCES)
        if isinstance(plan, Unsupported):
            return plan
        buckets = shapes(plan.max_num_seqs, plan.max_num_batched_tokens, plan.max_model_len)
        return replace(plan, limits=replace(LIMITS, buckets=buckets))

    def open(self, rank: Rank) -> Device:
        """See `Platform.open`."""
        settings = self._settings or Settings.from_environment()
        return OfflineCompiler(settings, rank) if rank.target is not None else FakeChip(settings, rank)
