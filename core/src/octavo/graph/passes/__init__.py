"""Passes: functions from graph to graph, one file each, testable with no device."""

from octavo.graph.passes.fuse import fuse
from octavo.graph.passes.pooled import pooled
from octavo.graph.passes.shard import shard
from octavo.graph.passes.specialise import specialise
from octavo.graph.passes.stage import stage

__all__ = ["fuse", "pooled", "shard", "specialise", "stage"]
