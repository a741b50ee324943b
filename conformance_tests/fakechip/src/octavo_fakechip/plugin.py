"""Where Octavo finds the platform (entry point group ``octavo.platforms``)."""

from octavo.platform import Platform, hookimpl
from octavo_fakechip.platform import FakeChipPlatform


@hookimpl
def octavo_platforms() -> list[Platform]:
    """The one platform of this plugin."""
    return [FakeChipPlatform()]
