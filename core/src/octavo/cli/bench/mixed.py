"""The second half of ``octavo bench latency``: what streams wait for their tokens while a long prompt is computed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from octavo.engine.core import EngineCore

_PROMPT = 32
"""Prompt tokens of a stream."""
_ALONE = 64
"""Steps of the streams alone before the long prompt comes."""


@dataclass
class Waits:
    """Seconds, over all rounds."""

    prompt: int
    """Tokens of the long prompt."""
    alone: list[float] = field(default_factory=list)
    """From token to token of the streams, before the long prompt came."""
    beside: list[float] = field(default_factory=list)
    """From token to token of the streams, until its first token."""
    first: list[float] = field(default_factory=list)
    """From the arrival of the long prompt to its first token."""


def show_mixed(
    model: str, streams: int, prompt: int, target: float, rounds: int, platform: str | None, threads: int | None
) -> None:
    """Print the waits with no target and with one of ``target`` milliseconds."""
    free = measure(model, streams, prompt, None, rounds, platform, threads)
    held = measure(model, streams, prompt, target, rounds, platform, threads)
    title = f"{streams} streams while a prompt of {free.prompt} tokens is computed, {rounds} rounds (ms)"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("", "token to token, p50", "p99", "longest", "first token of the prompt"):
        table.add_column(column, justify="right" if column else "left")
    for name, waits, first in (
        ("streams alone", free.alone + held.alone, None),
        ("no target", free.beside, free.first),
        (f"--itl-target {target:g}", held.beside, held.first),
    ):
        figures = [percentile(waits, 50), percentile(waits, 99), max(waits)]
        cells = [f"{seconds * 1e3:,.1f}" for seconds in figures]
        table.add_row(name, *cells, "" if first is None else f"{percentile(first, 50) * 1e3:,.0f}")
    Console().print(table)


def measure(
    model: str,
    streams: int,
    prompt: int,
    target: float | None,
    rounds: int,
    platform: str | None,
    threads: int | None,
) -> Waits:
    """Time the tokens of ``streams`` sequences that generate while a prompt of up to ``prompt`` tokens is computed.

    The prompt is shorter where the model's context is.
    """
    from octavo.config import EngineConfig, Settings
    from octavo.engine import start

    settings = Settings(max_num_seqs=streams + 1)
    config = EngineConfig(
        model,
        platform,
        settings,
        enable_prefix_caching=False,
        threads=threads,
        itl_target_ms=target,
        task="generate",
    )
    started = start(config, lambda what, done, total: None)
    waits = Waits(min(prompt, started.plan.max_model_len - 1))
    tokens = random.Random(0)
    vocabulary = started.model.config.vocab_size
    try:
        for turn in range(rounds):
            prompts = [[tokens.randrange(vocabulary) for _ in range(_PROMPT)] for _ in range(streams)]
            long = [tokens.randrange(vocabulary) for _ in range(waits.prompt)]
            _round(started.core, turn, prompts, long, waits)
    finally:
        started.core.close()
    return waits


def _round(core: EngineCore, turn: int, prompts: list[list[int]], long: list[int], waits: Waits) -> None:
    from octavo.sampling import SamplingParams

    endless = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    names = [f"stream {turn}.{i}" for i in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        core.add(name, prompt, endless)
    last: dict[str, float] = {}
    steps = _steps(core, last)
    while len(last) < len(names):  # until every stream has begun
        next(steps)
    for _ in range(_ALONE):
        waits.alone += next(steps)
    begun = time.perf_counter()
    core.add(f"prompt {turn}", long, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))
    while f"prompt {turn}" not in last:
        waits.beside += next(steps)
    waits.first.append(last[f"prompt {turn}"] - begun)
    for name in names:
        core.abort(name)


def _steps(core: EngineCore, last: dict[str, float]) -> Iterator[list[float]]:
    """Run steps; yields the waits that ended with each, and keeps when each request had its ``last`` token."""
    while True:
        events = core.step()
        now = time.perf_counter()
        found = []
        for event in events:
            if event.request_id in last:
                found.append(now - last[event.request_id])
            last[event.request_id] = now
        yield found


def percentile(values: list[float], percent: float) -> float:
    """The smallest of the values that ``percent`` of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
