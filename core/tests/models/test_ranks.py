"""Real checkpoints over ranks: each reads its part of the quantized weights, and the logits are those of one rank."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from octavo.graph import Graph, Interpreter, KVArrays, fuse, run_ranks, shard, stage
from octavo.graph.reference import run_sequence, sequence_inputs
from octavo.models.load import Model, load_model
from octavo.quant import dequantise, take_part
from octavo.text import load_tokenizer

pytestmark = pytest.mark.real_model

TEXT = "The old lighthouse keeper climbed 213 steps"


def rank_of(model: Model, graph: Graph) -> Interpreter:
    """A rank that reads what its graph names."""
    weights = {
        name: dequantise(take_part(model.checkpoint.tensor(name), spec.parts, spec.shape))
        for name, spec in graph.weights.items()
    }
    return Interpreter(graph, weights, np.float64)


@cache
def logits_of_one(path: Path, tokens: tuple[int, ...]) -> npt.NDArray[np.floating[Any]]:
    """What one rank computes, in float64."""
    model = load_model(path)
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    return run_sequence(fuse(model.graph), weights, tokens, np.float64)


@pytest.mark.parametrize(
    ("checkpoint", "tp", "pp"),
    [("smollm2_gguf", 3, 1), ("smollm2_folder", 3, 2), ("gemma3_gguf", 4, 1), ("gemma3_gguf", 2, 3)],
)
def test_logits_are_those_of_one_rank(checkpoint: str, tp: int, pp: int, request: pytest.FixtureRequest) -> None:
    """SmolLM2 has 9 heads over 3 KV heads, Gemma 3 has 4 over 1, which every rank keeps."""
    path: Path = request.getfixturevalue(checkpoint)
    model = load_model(path)
    tokens = load_tokenizer(path).encode(TEXT)
    expected = logits_of_one(path, tuple(tokens))
    inputs = sequence_inputs(model.graph, tokens, block_size=16)
    blocks = 1 + inputs["block_tables"].size
    for part in stage(model.graph, pp):
        graphs = [fuse(shard(part, rank, tp)) for rank in range(tp)]
        outputs = run_ranks(
            [rank_of(model, graph) for graph in graphs],
            inputs,
            [KVArrays(graph, blocks, 16, np.float64) for graph in graphs],
        )
        inputs |= {name: value for name, value in outputs[0].items() if name.startswith("carried.")}
    for found in outputs:
        assert np.array_equal(found["logits"], outputs[0]["logits"])
        np.testing.assert_allclose(found["logits"], expected, atol=1e-10 * float(expected.std()))
