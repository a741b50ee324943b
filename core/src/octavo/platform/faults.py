"""The ``faults`` facet: a device that fails when it is told to, so that it can be seen what becomes of an engine then.

A platform whose `PlatformInfo.contract` names the facet meets `FaultyDevice`; others need not. Conformance plants the
same faults around every device; where the facet is named, in the device itself as well, for what only the vendor can
bring about: a reset, a kernel that does not end.
"""

from __future__ import annotations

from typing import Protocol

from octavo.platform.contract import Device

FACET = "faults"

FAULTS = ("oom", "lost", "hang")
"""``oom``: there is no room for this step (DeviceOutOfMemory), and the next may succeed. ``lost``: the device is gone,
as `Device.health` says from then on (PlatformUnavailable). ``hang``: the step does not come back until `Device.close`.
"""


class FaultyDevice(Device, Protocol):
    """A device whose platform names the ``faults`` facet."""

    def inject(self, kind: str, step: int) -> None:
        """Let the ``step``-th step from now (1: the next to be submitted) meet a fault of `FAULTS`, once.

        It strikes in `Executable.submit` or `Executable.collect`, as such a fault does on the real device.
        """
