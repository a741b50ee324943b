"""The readers on real checkpoints, against transformers' own reading of the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from real_models import as_transformers_reads

from octavo.models.checkpoint import open_checkpoint
from octavo.models.load import load_model
from octavo.quant import dequantise

pytestmark = pytest.mark.real_model

PAIRS = [("smollm2_gguf", "smollm2_folder"), ("gemma3_gguf", "gemma3_folder")]
IDS = ["smollm2", "gemma3"]


@pytest.mark.parametrize(("gguf_name", "folder_name"), PAIRS, ids=IDS)
def test_gguf_and_folder_hold_the_same_weights(
    gguf_name: str, folder_name: str, request: pytest.FixtureRequest
) -> None:
    """The folder is transformers' reading of the GGUF, rounded to bf16."""
    converted, folder = (open_checkpoint(request.getfixturevalue(name)) for name in (gguf_name, folder_name))
    assert set(converted.names()) == set(folder.names())
    for name in folder.names():
        assert folder.info(name)[0].name == "bf16"
        assert converted.info(name)[1] == folder.info(name)[1]
        if "embed_tokens" not in name:
            rounded = torch.from_numpy(dequantise(converted.tensor(name))).bfloat16().float()
            assert np.array_equal(rounded.numpy(), dequantise(folder.tensor(name))), name


@pytest.mark.parametrize(("gguf_name", "folder_name"), PAIRS, ids=IDS)
def test_dequantised_gguf_tensors_equal_those_of_transformers(
    gguf_name: str, folder_name: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(gguf_name)
    checkpoint = open_checkpoint(path)
    model = as_transformers_reads(path, request.getfixturevalue(folder_name))
    wanted = {name: tensor.numpy() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    assert set(checkpoint.names()) == set(wanted)
    for name, tensor in wanted.items():
        assert np.array_equal(dequantise(checkpoint.tensor(name)), tensor), name


@pytest.mark.parametrize(("gguf_name", "folder_name"), PAIRS, ids=IDS)
def test_gguf_and_folder_are_the_same_model(gguf_name: str, folder_name: str, request: pytest.FixtureRequest) -> None:
    converted, folder = (load_model(request.getfixturevalue(name)) for name in (gguf_name, folder_name))
    assert converted.config == folder.config
    assert set(converted.graph.weights) == set(folder.graph.weights)
    assert converted.graph.nodes == folder.graph.nodes
