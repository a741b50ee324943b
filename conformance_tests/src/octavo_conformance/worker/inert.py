"""A process of its own that finds a platform and asks all that may be asked before it is opened, and takes a census
before and after: ``python -m octavo_conformance.worker.inert PLATFORM MUTANT``. One line of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

import numpy as np

from octavo.platform import ModelFacts, PlanRequest, Platform, Settings, hookspecs
from octavo_conformance import mutants
from octavo_conformance.worker.census import census

SDKS = ("torch", "jax", "tensorflow", "cupy", "pycuda", "numba", "triton", "onnxruntime", "openvino")
"""Packages that take a device, or seconds, when they are imported."""


def look(name: str, mutant: str) -> dict[str, Any]:
    """The census before and after, the SDKs that came in, and what the platform said of itself, twice."""
    np.ones((64, 64)) @ np.ones((64, 64))  # numpy's own threads are not the plugin's
    entries = metadata.entry_points(group=hookspecs.ENTRY_POINT_GROUP)
    for entry in sorted(entries, key=lambda e: e.name != name):  # as a rule it is called like the platform
        before = census()
        platforms: list[Platform] = getattr(entry.load(), "octavo_platforms", list)()
        found = next((p for p in platforms if p.info.name == name), None)
        if found is not None:
            platform = mutants.apply(mutant, found) if mutant else found
            seen = [describe(platform), describe(platform)]
            return {"before": before, "after": census(), "seen": seen, "sdks": [s for s in SDKS if s in sys.modules]}
    raise LookupError(f"no plugin of the group {hookspecs.ENTRY_POINT_GROUP} has a platform {name}")


def describe(platform: Platform) -> dict[str, Any]:
    """All that a platform says without a device, as text."""
    info, probe, can = platform.info, platform.probe(), platform.capabilities()
    model = ModelFacts(
        name="probe", ops=frozenset(can.ops), weight_formats=frozenset(can.weight_formats), attention=can.attention,
        head_dim=can.head_dims[0] if can.head_dims else 64, max_position=128, weight_bytes=1 << 20,
    )  # fmt: skip
    return {
        "info": [info.name, info.vendor, info.version, info.kind, sorted(info.contract.items())],
        "available": probe.available,
        "devices": [[d.name, d.memory_bytes] for d in probe.devices],
        "capabilities": str({k: sorted(v) if isinstance(v, frozenset) else v for k, v in vars(can).items()}),
        "plan": str(platform.negotiate(PlanRequest(model, Settings()))),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(*sys.argv[1:])) + "\n")
