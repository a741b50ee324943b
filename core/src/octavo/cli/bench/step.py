"""One step of a model, taken apart: for ``octavo bench kernels --step``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.graph import Graph
    from octavo.platform import BenchExecutable, KVStore, Platform, StepInput, StepTimes
    from octavo.platform.discovery import Registry


@dataclass(frozen=True)
class StepShape:
    """A step of ``rows`` alike: ``count`` new tokens each, the last of ``context``."""

    rows: int
    count: int
    context: int

    @classmethod
    def parse(cls, text: str) -> StepShape:
        """``prefill:[ROWSx]TOKENS``: whole prompts; ``decode:[ROWSx]CONTEXT``: one token each, the last of its context.

        ConfigError for anything else.
        """
        found = re.fullmatch(r"(prefill|decode):(?:([1-9]\d*)x)?([1-9]\d*)", text)
        if found is None:
            raise ConfigError(
                f"the step {text!r} is not understood; give prefill:[ROWSx]TOKENS or decode:[ROWSx]CONTEXT, "
                "for example prefill:1024 or decode:32x256 (--step)"
            )
        kind, rows, tokens = found[1], int(found[2] or 1), int(found[3])
        return cls(rows, tokens if kind == "prefill" else 1, tokens)

    def blocks(self, block_size: int) -> int:
        """Blocks of one row in one KV group."""
        return -(-self.context // block_size)


def measure_step(
    platform: Platform, registry: Registry, model: str, shape: StepShape, rounds: int, threads: int | None
) -> StepTimes:
    """Load the model as it would be served, and run the step over a cache full of random keys and values."""
    from octavo.config import EngineConfig
    from octavo.engine.artifacts import user_store
    from octavo.engine.startup import LazyWeights, plan_model
    from octavo.models import resolve
    from octavo.platform import Bucket, Rank, open_bench
    from octavo.runner import kv_layout, load_runner

    path = resolve(model)
    loaded, plan = plan_model(EngineConfig(str(path), task="generate"), path, platform, registry)
    block_size = plan.block_size
    bucket = Bucket(shape.rows * shape.count, shape.rows, shape.rows, shape.blocks(block_size))
    device = open_bench(platform, Rank(threads=threads, artifacts=user_store()))
    try:
        layout = kv_layout(loaded.graph, block_size, plan.kv_cache_dtype)
        executables, graph = load_runner(
            device, loaded.graph, LazyWeights(loaded), (bucket,), layout, lambda *_: None, loaded.files
        )
        executable = cast("BenchExecutable", executables[bucket])
        step = build_step(graph, shape, block_size, bucket)
        store = device.allocate_kv(layout, 1 + step.block_tables.size)
        try:
            _fill(executable, step, store)
            return executable.step_times(step, store, rounds)
        finally:
            store.close()
    finally:
        device.close()


def build_step(graph: Graph, shape: StepShape, block_size: int, bucket: tuple[int | None, ...]) -> StepInput:
    """The step's arrays: random tokens, every row and KV group over blocks of its own, greedy draws."""
    from octavo.platform import Bucket, SamplingBatch, StepInput

    rows, width, groups = shape.rows, shape.blocks(block_size), len(graph.kv_windows)
    vocab = graph.types[graph.outputs["logits"]].width
    tables = 1 + np.arange(groups * rows * width, dtype=np.int32).reshape(groups, rows, width)
    at = np.arange(shape.context - shape.count, shape.context)
    return StepInput(
        tokens=np.random.default_rng(0).integers(0, vocab, rows * shape.count, dtype=np.int32),
        positions=np.tile(at, rows).astype(np.int32),
        query_starts=np.arange(rows + 1, dtype=np.int32) * shape.count,
        context_lens=np.full(rows, shape.context, np.int32),
        slots=(tables[:, :, at // block_size] * block_size + at % block_size).reshape(groups, -1).astype(np.int32),
        block_tables=tables,
        sample_rows=(np.arange(1, rows + 1, dtype=np.int32) * shape.count - 1).astype(np.int32),
        copies=np.zeros((0, 2), np.int32),
        sampling=SamplingBatch.plain(rows, greedy=True),
        bucket=Bucket(*bucket),
    )


def _fill(executable: BenchExecutable, step: StepInput, store: KVStore) -> None:
    """Random keys and values in every block, through the copies of a step that nobody times."""
    store.write_block(1, np.random.default_rng(0).standard_normal(store.read_block(1).shape, np.float32))
    copies = np.array([(1, block) for block in range(2, store.blocks)], np.int32).reshape(-1, 2)
    executable.collect(executable.submit(replace(step, copies=copies), store))
