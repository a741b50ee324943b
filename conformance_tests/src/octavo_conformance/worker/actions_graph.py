"""Jobs of the graph checks: compiling what core would never ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.graph import from_json
from octavo.platform import Bucket, Platform, Rank
from octavo_conformance.worker import values
from octavo_conformance.worker.actions import action
from octavo_conformance.worker.candidate import candidate


@action("compile")
def compile_graph(platform: Platform, arguments: Mapping[str, Any]) -> None:
    """Open, load, compile for one bucket, close; without asking `negotiate` first."""
    graph = from_json(arguments["graph"])
    weights = {name: values.weight_in(raw) for name, raw in arguments["weights"].items()}
    with candidate("open"):
        device = platform.open(Rank())
    try:
        with candidate("load"):
            handle = device.load(graph, weights, lambda what, done, total: None)
        with candidate("compile"):
            device.compile(graph, Bucket(*arguments["bucket"]), handle, values.layout_in(arguments["layout"]))
    finally:
        with candidate("close"):
            device.close()
