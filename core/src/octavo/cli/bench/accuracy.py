"""``octavo bench accuracy``: how far a platform's logits are from float32 on the same weights.

Teacher-forced: both see the same text; at each position the two next-token distributions are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.models import Model
    from octavo.platform import Platform

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
    text: Annotated[list[Path], typer.Option(help="Text file to read; may be given several times.")],
    tokens: Annotated[int, typer.Option(help="How many tokens of the text to use.")] = 4096,
    platform: Annotated[str | None, typer.Option(help="Which platform to judge.")] = None,
) -> None:
    """Mean KL divergence and agreement on the best token, against the reference platform in float32."""
    found = measure(model, text, tokens, platform)
    lines = (
        f"tokens               {found.positions:,}",
        f"mean KL divergence   {found.divergence / found.positions:.6f} nats",
        f"same best token      {found.same_best / found.positions:.2%}",
    )
    Console().print("\n".join(lines), highlight=False)


def measure(model: str, text: list[Path], tokens: int, platform: str | None) -> Agreement:
    """Run both platforms over the text, in windows of 256 tokens that each begin a sequence."""
    from octavo.models import load_model, resolve
    from octavo.platform.discovery import discover, select
    from octavo.text import load_tokenizer

    found = discover().platforms
    path = resolve(model)
    loaded = load_model(path)
    words = "\n".join(_read(file) for file in text)
    ids = load_tokenizer(path).encode(words)[:tokens]
    if len(ids) < WINDOW:
        raise ConfigError(f"the text has {len(ids)} tokens; give at least {WINDOW} (--text)")
    judged = _logits(loaded, select(found, platform), ids)
    exact = _logits(loaded, select(found, "reference"), ids)
    agreement = Agreement()
    for a, b in zip(exact, judged, strict=True):
        agreement.add(a, b)
    return agreement


def _logits(model: Model, platform: Platform, ids: list[int]) -> Iterator[npt.NDArray[np.float32]]:
    """The logits at every position, window by window."""
    from octavo.engine.artifacts import user_store
    from octavo.engine.startup import LazyWeights
    from octavo.platform import Bucket, Rank
    from octavo.runner import kv_layout, load_runner

    device = platform.open(Rank(artifacts=user_store()))
    weights = LazyWeights(model)
    block_size, dtype = platform.capabilities().block_sizes[0], platform.capabilities().kv_dtypes[0]
    layout = kv_layout(model.graph, block_size, dtype)
    executables, graph = load_runner(device, model.graph, weights, (Bucket(),), layout, lambda *_: None, model.files)
    blocks = 1 + len(graph.kv_windows) * -(-WINDOW // block_size)
    store = device.allocate_kv(layout, blocks)
    try:
        for start in range(0, len(ids) - WINDOW + 1, WINDOW):
            step = _window_step(graph, ids[start : start + WINDOW], block_size)
            executable = executables[Bucket()]
            logits = executable.collect(executable.submit(step, store)).logits
            assert logits is not None, "a step that is not plainly greedy brings logits"
            yield logits
    finally:
        store.close()
        device.close()


def _window_step(graph: Any, ids: list[int], block_size: int) -> Any:
    from octavo.graph.reference import sequence_inputs
    from octavo.platform import Bucket, SamplingBatch, StepInput

    arrays = sequence_inputs(graph, ids, block_size)
    sampling = SamplingBatch.plain(len(ids), greedy=False)
    return StepInput(**arrays, copies=np.zeros((0, 2), np.int32), sampling=sampling, bucket=Bucket())


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the text {file} cannot be read: {error} (--text)") from error


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
