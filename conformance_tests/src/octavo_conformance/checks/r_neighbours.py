"""Plugins of others, as an installer would leave them, to see that they are no bother."""

from __future__ import annotations

from pathlib import Path

_BROKEN = 'raise OSError("no driver here")\n'

_PLATFORM = """
from octavo import platform as api

class Neighbour:
    info = api.PlatformInfo("{name}", "Neighbour", "1.0", "{kind}",
                            {{"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}})

    def probe(self):
        return api.Probe(True, "next door", (api.DeviceInfo("next door"),))

    def capabilities(self):
        return api.REFERENCE_CAPABILITIES

    def negotiate(self, request):
        return api.negotiate_by_declaration(request, "{name}", api.REFERENCE_CAPABILITIES, api.Limits())

    def open(self, rank):
        return api.ReferenceDevice(api.host_memory)

@api.hookimpl
def octavo_platforms():
    return [Neighbour()]
"""


def install(folder: Path) -> None:
    """A broken plugin, an accelerator called neighbour, and two distributions with a platform called twin."""
    _plugin(folder, "broken", "broken", _BROKEN)
    _plugin(folder, "neighbour", "neighbour", _PLATFORM.format(name="neighbour", kind="accelerator"))
    for which in "ab":
        _plugin(folder, f"twin-{which}", "twin", _PLATFORM.format(name="twin", kind="reference"))


def _plugin(folder: Path, distribution: str, entry: str, source: str) -> None:
    module = f"octavo_{distribution.replace('-', '_')}_next_door"
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    about = folder / f"octavo_{distribution.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: octavo-{distribution}\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[octavo.platforms]\n{entry} = {module}\n", "utf-8")
