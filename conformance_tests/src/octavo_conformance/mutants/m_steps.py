"""Faults in what a step reads and brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from octavo.platform import Bucket, Executable, KVLayout, KVStore, StepInput, StepOutput
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped


@mutant("M01", "reads the block after the right one", killed_by=(
    "att.block_boundary", "att.table_permutation", "att.decode_single", "att.decode_batch", "att.mixed_batch",
    "att.table_shared_blocks",
))  # fmt: skip
class NextBlock(Wrapped):
    """Attention reads from table[i + 1]; writes go where they should."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        tables = step.block_tables
        if tables.shape[-1] > 1:
            tables = np.ascontiguousarray(np.concatenate([tables[..., 1:], tables[..., -1:]], axis=-1))
        return replace(step, block_tables=tables)


@mutant("M02", "a query sees the token after its own", killed_by=("att.prefill_causal", "att.mixed_batch"))
class SeesNext(Wrapped):
    """Every token of a chunk runs as a row of its own whose context is one longer. Where shapes are static there is no
    room for that; there the context of every row is one longer instead.
    """

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        if step.bucket != Bucket():
            longer = np.where(step.context_lens > 0, step.context_lens + 1, 0).astype(np.int32)
            most = step.block_tables.shape[-1] * store.layout.block_size
            return executable.submit(replace(step, context_lens=np.minimum(longer, most)), store)
        counts = np.diff(step.query_starts)
        owner = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(owner)) - step.query_starts[:-1][owner]
        position = step.context_lens[owner] - counts[owner] + within
        split = replace(
            step,
            query_starts=np.arange(len(owner) + 1, dtype=np.int32),
            context_lens=np.minimum(position + 2, step.context_lens[owner]).astype(np.int32),
            block_tables=np.ascontiguousarray(step.block_tables[:, owner]),
        )
        return executable.submit(split, store)


@mutant("M46.zeros", "every logit is zero", killed_by=(
    "att.prefill_causal", "norm.rms", "lin.gemm", "act.gated", "act.elementwise_exhaustive", "act.arithmetic",
    "lin.bias_shapes", "lin.tied_embedding", "smp.greedy_argmax", "qnt.f32.dequant_exact", "qnt.f16.dequant_exact",
    "qnt.bf16.dequant_exact",
))  # fmt: skip
class Zeros(Wrapped):
    """The null platform: it does the work and brings nothing of it."""

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is not None:
            return replace(output, logits=np.zeros_like(output.logits))
        assert output.samples is not None
        return replace(output, samples=replace(output.samples, tokens=np.zeros_like(output.samples.tokens)))
