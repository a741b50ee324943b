"""Folders that llm-compressor, AutoRound and GPTQModel wrote themselves mean what each of them says they mean.

``producers/record.py`` ran each writer's whole flow on a tiny Llama, and recorded its folder byte for byte and the
writer's own dequantized weights, in the precision that it computes them in; Octavo's are exact until the platform
rounds them, so they are compared in that precision. AutoRound's AWQ folder was dequantized by the function that its
packing comes with, since its inference layers for such folders need a GPU or another project.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.models.load import load_model
from octavo.quant import dequantise

PRODUCERS = Path(__file__).parent / "producers"
# What a writer's weights are rounded to, and the format of down_proj, whose rows have two groups.
RECORDED = {
    "auto_round-asym": (torch.float16, "uint4_g32"),
    "auto_round-awq": (torch.float16, "uint4_g32"),
    "auto_round-gptq": (torch.float16, "int4_g32"),
    "auto_round-sym": (torch.float16, "int4_g32"),
    "gptqmodel-awq": (torch.float16, "uint4_g32"),
    "gptqmodel-awq-sym": (torch.float16, "int4_g32"),
    "gptqmodel-sym": (torch.float16, "int4_g32"),
    "gptqmodel-v2": (torch.float16, "uint4_g32"),
    "llmcompressor-w4a16": (torch.bfloat16, "int4_g32"),
    "llmcompressor-w4a16-asym": (torch.bfloat16, "uint4_g32"),
    "llmcompressor-w8a16": (torch.bfloat16, "q8_0"),
    "llmcompressor-w8a8": (torch.bfloat16, "int8"),
}


def written(name: str, folder: Path) -> dict[str, np.ndarray]:
    """Put the writer's files into ``folder``; its weights by the names of their modules."""
    weights = {}
    with np.load(PRODUCERS / f"{name}.npz") as archive:
        for key in archive:
            kind, _, rest = key.partition("/")
            if kind == "file":
                (folder / rest).write_bytes(archive[key].tobytes())
            else:
                weights[rest] = archive[key].astype(np.float32)
    return weights


def test_every_recording_is_compared() -> None:
    assert {path.stem for path in PRODUCERS.glob("*.npz")} == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_a_writers_folder_means_what_the_writer_says(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    precision, stored_as = RECORDED[name]
    weights = written(name, tmp_path)
    model = load_model(tmp_path)
    assert model.graph.weights["model.layers.0.mlp.down_proj.weight"].format == stored_as
    assert set(weights) == {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"}
    for module, expected in weights.items():
        found = torch.from_numpy(dequantise(model.checkpoint.tensor(f"{module}.weight")))
        np.testing.assert_array_equal(found.to(precision).float().numpy(), expected)
        assert len(np.unique(expected)) > 30
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], caplog.text


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_names_the_version_of_its_writer(name: str, tmp_path: Path) -> None:
    written(name, tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    version = {
        "auto_round": found.get("autoround_version"),
        "gptqmodel": found.get("meta", {}).get("quantizer"),
        "llmcompressor": found.get("version"),
    }[name.partition("-")[0]]
    assert version in ("0.16.1", ["gptqmodel:7.7.0"], "0.19.0")
