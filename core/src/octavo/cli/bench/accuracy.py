"""``octavo bench accuracy``: how far a platform's logits are from float32 on the same weights.

Teacher-forced: both see the same text; at each position the two next-token distributions are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from octavo.config import KV_DTYPES, dtype_named
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.graph import Graph
    from octavo.platform import Bucket, Plan, Platform, StepInput
    from octavo.platform.discovery import Registry

WINDOW = 256


@dataclass
class Agreement:
    """Sums over positions."""

    positions: int = 0
    divergence: float = 0.0
    same_best: int = 0

    def add(self, exact: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> None:
        """Compare two [positions, vocab] arrays of logits."""
        p, q = _log_softmax(exact), _log_softmax(other)
        self.positions += len(p)
        self.divergence += float((np.exp(p) * (p - q)).sum())
        self.same_best += int((exact.argmax(-1) == other.argmax(-1)).sum())


def accuracy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, or a hub id.")],
    text: Annotated[list[Path], typer.Option(help="Text file to evaluate; may be repeated.")],
    tokens: Annotated[int, typer.Option(help="Number of tokens of the text to use.")] = 4096,
    platform: Annotated[str | None, typer.Option(help="Platform to evaluate.")] = None,
    kv_cache_dtype: Annotated[str, typer.Option(help="Data type of the KV cache, as for `octavo serve`.")] = "auto",
) -> None:
    """Compare logits with the reference platform's, in float32.

    Prints the mean KL divergence and how often both have the same best token.
    """
    found = measure(model, text, tokens, platform, kv_cache_dtype)
    lines = (
        f"tokens               {found.positions:,}",
        f"mean KL divergence   {found.divergence / found.positions:.6f} nats",
        f"same best token      {found.same_best / found.positions:.2%}",
    )
    Console().print("\n".join(lines), highlight=False)


def measure(model: str, text: list[Path], tokens: int, platform: str | None, kv_cache_dtype: str = "auto") -> Agreement:
    """Run both platforms over the text, in windows of 256 tokens that each begin a sequence."""
    from octavo.models import resolve
    from octavo.platform.discovery import discover, select
    from octavo.text import load_tokenizer

    registry = discover()
    path = resolve(model)
    words = "\n".join(_read(file) for file in text)
    ids = load_tokenizer(path).encode(words)[:tokens]
    if len(ids) < WINDOW:
        raise ConfigError(f"the text has {len(ids)} tokens; give at least {WINDOW} (--text)")
    dtype = dtype_named(kv_cache_dtype, KV_DTYPES, "kv_cache_dtype")
    judged = _logits(path, select(registry.platforms, platform), registry, ids, dtype)
    exact = _logits(path, select(registry.platforms, "reference"), registry, ids)
    agreement = Agreement()
    for a, b in zip(exact, judged, strict=True):
        agreement.add(a, b)
    return agreement


def _logits(
    path: Path, platform: Platform, registry: Registry, ids: list[int], kv_cache_dtype: str | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """The logits at every position, window by window, each in steps of one shape that the platform has."""
    from octavo.config import EngineConfig, Settings
    from octavo.engine.artifacts import user_store
    from octavo.engine.startup import LazyWeights, plan_model
    from octavo.platform import Rank
    from octavo.runner import kv_layout, load_runner

    config = EngineConfig(
        str(path),
        settings=Settings(max_model_len=WINDOW, max_num_seqs=1, kv_cache_dtype=kv_cache_dtype),
        task="generate",
    )
    model, plan = plan_model(config, path, platform, registry)
    count, bucket = _shape(plan)
    device = platform.open(Rank(artifacts=user_store()))
    try:
        layout = kv_layout(model.graph, plan.block_size, plan.kv_cache_dtype)
        executables, graph = load_runner(
            device, model.graph, LazyWeights(model), (bucket,), layout, lambda *_: None, model.files
        )
        executable = executables[bucket]
        store = device.allocate_kv(layout, 1 + len(graph.kv_windows) * -(-WINDOW // plan.block_size))
        try:
            for start in range(0, len(ids) - WINDOW + 1, WINDOW):
                rows = []
                for first in range(0, WINDOW, count):
                    tokens = range(first, min(first + count, WINDOW))
                    step = _step(graph, ids[start : start + WINDOW], tokens, plan.block_size, bucket)
                    logits = executable.collect(executable.submit(step, store)).logits
                    assert logits is not None, "a step that is not plainly greedy brings logits"
                    rows.append(logits[: len(tokens)].copy())  # the device may write over them at the next collect
                yield np.concatenate(rows)
        finally:
            store.close()
    finally:
        device.close()


def _shape(plan: Plan) -> tuple[int, Bucket]:
    """The most tokens that one step can take of a window and bring logits for, and the cheapest bucket for them."""
    from octavo.platform import BucketSet

    buckets = BucketSet(plan.limits.buckets)
    most = min(WINDOW, plan.max_num_batched_tokens, plan.limits.max_tokens or WINDOW)
    most = max(most - most % plan.limits.chunk_multiple, 1)
    sizes = {min(size for size in (most, b.tokens, b.samples) if size is not None) for b in buckets.buckets}
    for count in sorted(sizes, reverse=True):
        bucket = buckets.find(count, 1, count, -(-WINDOW // plan.block_size))
        if bucket is not None and count % plan.limits.chunk_multiple == 0:
            return count, bucket
    raise ConfigError(
        f"the platform has no shape for a sequence of {WINDOW} tokens (its largest: {buckets.buckets[-1]})"
    )


def _step(graph: Graph, window: list[int], tokens: range, block_size: int, bucket: Bucket) -> StepInput:
    """The step that runs these of the window's tokens, padded to the bucket."""
    from octavo.graph.reference import sequence_inputs
    from octavo.platform import SamplingBatch, StepInput
    from octavo.runner.batch import pad

    arrays, count = sequence_inputs(graph, window, block_size), len(tokens)
    taken = {name: arrays[name][..., tokens.start : tokens.stop] for name in ("tokens", "positions", "slots")}
    step = StepInput(
        **{name: np.ascontiguousarray(array) for name, array in taken.items()},
        query_starts=np.array([0, count], np.int32),
        context_lens=np.array([tokens.stop], np.int32),
        block_tables=arrays["block_tables"],
        sample_rows=np.arange(count, dtype=np.int32),
        copies=np.zeros((0, 2), np.int32),
        sampling=SamplingBatch.plain(count, greedy=False),
        bucket=bucket,
    )
    return pad(step, bucket)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the text {file} cannot be read: {error} (--text)") from error


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
