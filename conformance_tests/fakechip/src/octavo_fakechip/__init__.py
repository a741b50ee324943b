"""A platform for an accelerator that does not exist, and is as awkward as those that do; see the README beside it."""

from octavo_fakechip.chip import FakeChip
from octavo_fakechip.faults import Fault, Faults
from octavo_fakechip.platform import FakeChipPlatform
from octavo_fakechip.settings import Settings

__all__ = ["FakeChip", "FakeChipPlatform", "Fault", "Faults", "Settings"]
