"""The reference platform: core's own plugin, found through its entry point like any other.

It runs every model in numpy, float32, on the host: slow, and right. Others are compared with it, so it is used only
where it is named (``--platform reference``), never by default.
"""

from __future__ import annotations

from octavo._version import version
from octavo.config import Settings
from octavo.platform.contract import Device, Platform, Rank
from octavo.platform.hookspecs import hookimpl
from octavo.platform.host import host_memory
from octavo.platform.info import Capabilities, DeviceInfo, PlatformInfo, Probe
from octavo.platform.limits import Limits
from octavo.platform.negotiate import Plan, PlanRequest, Unsupported, negotiate_by_declaration
from octavo.platform.reference import REFERENCE_CAPABILITIES, ReferenceDevice

_CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}
_DEFAULTS = Settings(max_num_seqs=64, memory_utilization=0.5)


class ReferencePlatform:
    """Meets `octavo.platform.Platform`."""

    @property
    def info(self) -> PlatformInfo:
        """See `Platform.info`."""
        return PlatformInfo("reference", "Octavo", version(), "reference", _CONTRACT)

    def probe(self) -> Probe:
        """Available wherever Python and numpy are."""
        device = DeviceInfo("numpy on the host", host_memory().total)
        return Probe(True, "numpy in float32: slow and right, to compare others with", (device,))

    def capabilities(self) -> Capabilities:
        """See `Platform.capabilities`."""
        return REFERENCE_CAPABILITIES

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """See `Platform.negotiate`."""
        return negotiate_by_declaration(request, "reference", REFERENCE_CAPABILITIES, Limits(), _DEFAULTS)

    def open(self, rank: Rank) -> Device:
        """See `Platform.open`."""
        return ReferenceDevice(host_memory)


@hookimpl
def octavo_platforms() -> list[Platform]:
    """The one platform of this plugin."""
    return [ReferencePlatform()]
