"""What core promises about a step, checked. A broken promise is core's bug, so it is a RuntimeError."""

from __future__ import annotations

import numpy as np

from octavo.platform import StepInput
from octavo_fakechip.compiler import Program
from octavo_fakechip.habits import BLOCK, NAME, VOLUME


def check_step(step: StepInput, program: Program, blocks: int) -> None:
    """Raise RuntimeError unless the step is one that ``program`` may be given, over a pool of ``blocks``."""
    shapes = {name: array.shape for name, array in step.graph_inputs().items()}
    _require(shapes == program.shapes, f"the step has the shapes {shapes}, the program {program.shapes}")
    wrong = [name for name, a in step.graph_inputs().items() if a.dtype != np.int32 or not a.flags.c_contiguous]
    _require(not wrong, f"{', '.join(wrong)} are not C-contiguous int32")
    counts = np.diff(step.query_starts)
    live = int(step.query_starts[-1])
    _require(step.query_starts[0] == 0 and bool((counts >= 0).all()), "query_starts do not ascend from 0")
    active = counts > 0
    _require(bool((step.context_lens[active] >= counts[active]).all()), "a row has more new tokens than context")
    _require(not step.context_lens[~active].any(), "a padding row has a context")
    _require(not (counts > 1).any() or int(active.sum()) == 1, "a prompt chunk shares its step")
    longest = -(-int(step.context_lens.max(initial=0)) // BLOCK) * BLOCK
    _require(int(active.sum()) * longest <= VOLUME, f"rows x context is more than {VOLUME}")
    padding = (step.tokens[live:].any(), step.positions[live:].any(), (step.slots[:, live:] != -1).any())
    _require(not any(padding), "padding tokens have an id, a position or a slot")
    slots, tables = step.slots[:, :live], step.block_tables
    _require(bool((slots // BLOCK > 0).all()), "a token goes to the null block, or nowhere")
    _require(bool((slots < blocks * BLOCK).all()), f"a slot is beyond the pool of {blocks} blocks")
    _require(bool(((tables >= 0) & (tables < blocks)).all()), f"a table names a block beyond the pool of {blocks}")
    _require(all(len(np.unique(group)) == live for group in slots), "two tokens go to one slot")
    _require(bool((step.sample_rows < max(live, 1)).all()), "a row of logits is wanted for padding")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise RuntimeError(f"{NAME}: core broke the contract: {sentence}")
