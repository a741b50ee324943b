"""The runner: from a plan to a step on the device, and from its output to a result. One rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ArtifactMissing
from octavo.graph import Graph, fuse
from octavo.platform import Bucket, Device, Executable, KVLayout, KVStore, Progress, Sampler
from octavo.platform.step import Floats, Ints, Samples, StepInput, StepOutput
from octavo.quant import WeightTensor
from octavo.runner.batch import Batch, Draws
from octavo.runner.sampler import HostSampler
from octavo.step_plan import StepPlan, StepResult, TokenLogprobs

_FAILED = "the model's logits were not finite, or every token was forbidden"


@dataclass(frozen=True)
class Pending:
    """A step in flight."""

    plan: StepPlan
    draws: Draws
    step: StepInput
    executable: Executable
    ticket: Any


class Runner:
    """Runs plans on one device. ``sampler`` is the device's own for logits, if it has one.

    Everything is compiled before the first step; a step in a bucket that was not compiled is a bug, not a pause.

    ``absent`` are the ids below the model's vocabulary size that its tokenizer does not have: embeddings are padded to
    round sizes, and some vocabularies have gaps. They are nobody's text, so their logits are -inf before anything looks
    at them. A device that keeps its logits and brings the best token alone is asked for them only if that token is one
    of these, which a trained model does not do: the step is repeated, so that it costs nothing otherwise.
    """

    def __init__(
        self,
        executables: Mapping[Bucket, Executable],
        kv: KVStore,
        batch: Batch,
        sampler: Sampler | None = None,
        absent: Sequence[int] = (),
    ) -> None:
        self._executables = dict(executables)
        self._kv = kv
        self._batch = batch
        self._sampler = sampler or HostSampler()
        self._absent = np.array(sorted(absent), np.int32)
        self._absent_at = _index(self._absent)

    def submit(self, plan: StepPlan) -> Pending:
        """Start a step. Plans are submitted in the order they were made, one at a time."""
        self._batch.apply(plan)
        step, draws = self._batch.build(plan)
        executable = self._executables[plan.bucket]
        return Pending(plan, draws, step, executable, executable.submit(step, self._kv))

    def collect(self, pending: Pending) -> StepResult:
        """Wait for a step, sample where the device did not, and sort the draws back into rows."""
        output = pending.executable.collect(pending.ticket)
        if output.pooled is not None:
            return sort_pooled(pending.plan, output.pooled)
        samples = self._samples(output, pending)
        result = sort_draws(pending.plan, pending.draws, samples)
        self._batch.record(pending.plan, result.tokens)
        return result

    def _samples(self, output: StepOutput, pending: Pending) -> Samples:
        batch = pending.draws.batch
        if output.samples is not None:
            if not len(self._absent):
                return output.samples
            if not (batch.plain_greedy and np.isin(output.samples.tokens, self._absent).any()):
                return _without(output.samples, self._absent)
            batch = replace(batch, plain_greedy=False)
            step = replace(pending.step, sampling=batch)  # writes the same keys and values to the same slots
            output = pending.executable.collect(pending.executable.submit(step, self._kv))
            if output.samples is not None:
                return output.samples
        assert output.logits is not None, "a step brings logits or samples"
        logits = output.logits
        if len(self._absent):
            logits = logits if logits.flags.writeable else logits.copy()
            logits[:, self._absent_at] = -np.inf
        return self._sampler.sample(logits, batch)


def _index(absent: Ints) -> slice | Ints:
    """Ascending ids as an index; a slice where they have no gap, as padding at the end has none."""
    if len(absent) and int(absent[-1] - absent[0]) == len(absent) - 1:
        return slice(int(absent[0]), int(absent[-1]) + 1)
    return absent


def _without(samples: Samples, absent: Ints) -> Samples:
    """Samples of a device whose alternatives may name absent ids: these fall behind all others, at -inf."""
    if samples.top_ids is None or samples.top_logprobs is None or not np.isin(samples.top_ids, absent).any():
        return samples
    values = np.where(np.isin(samples.top_ids, absent), -np.inf, samples.top_logprobs)
    order = np.argsort(-values, axis=1, kind="stable")
    return replace(
        samples,
        top_ids=np.take_along_axis(samples.top_ids, order, 1),
        top_logprobs=np.take_along_axis(values, order, 1).astype(np.float32),
    )


def load_runner(
    device: Device,
    graph: Graph,
    weights: Mapping[str, WeightTensor],
    buckets: tuple[Bucket, ...],
    layout: KVLayout,
    progress: Progress,
    files: Sequence[Path] = (),
) -> tuple[dict[Bucket, Executable], Graph]:
    """Load the weights and compile every bucket. Returns the executables and the fused graph they run.

    Raises what the device raises; ArtifactMissing for all buckets that miss one, together.
    """
    fused = fuse(graph)
    handle = device.load(fused, weights, progress, files)
    executables: dict[Bucket, Executable] = {}
    missing: list[ArtifactMissing] = []
    for done, bucket in enumerate(buckets):
        progress("compiling", done, len(buckets))
        try:
            executables[bucket] = device.compile(fused, bucket, handle, layout)
        except ArtifactMissing as error:
            missing.append(error)
    if missing:
        raise ArtifactMissing("; ".join(map(str, missing)), key=missing[0].key, device=missing[0].device)
    progress("compiling", len(buckets), len(buckets))
    return executables, fused


def kv_layout(graph: Graph, block_size: int, dtype: str) -> KVLayout:
    """The block pool that a graph needs."""
    heads, dim = (graph.kv[0].kv_heads, graph.kv[0].head_dim) if graph.kv else (0, 0)
    return KVLayout(block_size, graph.kv_slots, heads, dim, dtype)


def sort_draws(plan: StepPlan, draws: Draws, samples: Samples) -> StepResult:
    """A step's draws, row by row in the plan's order."""
    tokens, failed = samples.tokens.tolist(), samples.failed
    result = StepResult([], [], [])
    wanted = draws.batch.logprobs
    if not failed.any() and samples.logprobs is None and not any(draws.scored):  # the common step
        at = 0
        for count in plan.samples:
            result.tokens.append(tokens[at : at + count])
            at += count
        result.logprobs = [None] * len(plan.rows)
        result.prompt_logprobs = [None] * len(plan.rows)
        return result
    at = 0
    for row, scored, count in zip(plan.rows, draws.scored, plan.samples, strict=True):
        middle, end = at + scored, at + scored + count
        if failed[at:end].any():
            stuck = draws.stuck.get(row)
            result.failed[row] = _FAILED if stuck is None else stuck.reason
            if stuck is not None:
                result.refused[row] = stuck.param
        result.tokens.append(tokens[middle:end])
        prompt = [_logprobs(samples, d, int(wanted[d])) for d in range(at, middle)]
        result.prompt_logprobs.append(prompt if scored else None)
        asked = count > 0 and wanted[middle] >= 0
        result.logprobs.append([_logprobs(samples, d, int(wanted[d])) for d in range(middle, end)] if asked else None)
        at = end
    return result


def sort_pooled(plan: StepPlan, pooled: Floats) -> StepResult:
    """A step's vectors, row by row in the plan's order."""
    rows = len(plan.rows)
    result = StepResult([[]] * rows, [None] * rows, [None] * rows, pooled=[vector.copy() for vector in pooled[:rows]])
    finite = np.isfinite(pooled[:rows]).all(axis=1)
    for at in np.flatnonzero(~finite).tolist():
        result.failed[plan.rows[at]] = "the model's hidden states were not finite"
    return result


def _logprobs(samples: Samples, draw: int, count: int) -> TokenLogprobs:
    assert samples.logprobs is not None and samples.ranks is not None
    assert samples.top_ids is not None and samples.top_logprobs is not None
    ids, values = samples.top_ids[draw, :count].tolist(), samples.top_logprobs[draw, :count].tolist()
    return TokenLogprobs(
        int(samples.tokens[draw]),
        float(samples.logprobs[draw]),
        int(samples.ranks[draw]),
        tuple(zip(ids, values, strict=True)),
    )
