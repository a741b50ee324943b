"""scripts/make_model.py: one model, in every format that it writes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models.tiny import tiny_checkpoint, tiny_gguf
from safetensors import safe_open

from octavo.models import Model, load_model
from octavo.quant import dequantise

SCRIPTS = Path(__file__).parents[3] / "scripts"

Make = Callable[..., Model]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Runs the script for the tiny shape, with borrowed tokenizers, and opens what it wrote."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("make_model")
    folder = tiny_checkpoint("llama", tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    file = tiny_gguf(folder, tmp_path / "tiny.gguf")

    def run(form: str, seed: int = 3) -> Model:
        out = tmp_path / f"{form}-{seed}"
        tokenizer = file if form.startswith("gguf") else folder
        status = script.main(
            ["--shape", "tiny", "--format", form, "--tokenizer", str(tokenizer), "--out", str(out), "--seed", str(seed)]
        )
        assert status == 0
        return load_model(out / "model.gguf" if form.startswith("gguf") else out)

    return run


@pytest.mark.parametrize(
    ("form", "held", "steps"),
    [
        ("int4-awq", "uint4_g128", 0.4),
        ("int4-gptq", "int4_g128", 0.4),
        ("int4-packed", "int4_g128", 0.4),
        ("int8", "int8", 0.04),
        ("gguf-q4_0", "q4_0", 0.4),
    ],
)
def test_every_format_holds_the_same_model_but_for_rounding(make: Make, form: str, held: str, steps: float) -> None:
    """A weight is normal with some deviation; half a step of a scale that reaches five of them is lost."""
    plain, model = make("bf16"), make(form)
    assert model.config.ropes == plain.config.ropes
    assert set(model.graph.weights) == set(plain.graph.weights)
    for name in plain.graph.weights:
        wanted, found = (dequantise(m.checkpoint.tensor(name)) for m in (plain, model))
        if "_proj" in name:
            assert model.graph.weights[name].format == held
            assert np.abs(found - wanted).max() < steps * wanted.std()
        elif "embed" not in name:
            np.testing.assert_array_equal(found, wanted)


def test_a_folder_is_one_that_the_safetensors_library_reads_with_the_borrowed_tokenizer(make: Make) -> None:
    folder = make("int4-packed").checkpoint.path
    with safe_open(folder / "model.safetensors", "np") as file:
        assert file.get_tensor("model.layers.0.mlp.up_proj.weight_shape").tolist() == [256, 128]
        assert "model.layers.1.mlp.down_proj.weight" not in file.keys()  # noqa: SIM118 it is no mapping
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["format"] == "pack-quantized"
    assert (folder / "tokenizer.json").read_text() == "{}"


def test_the_seed_decides_the_weights(make: Make) -> None:
    one, same = (make("bf16").checkpoint.tensor("model.layers.0.mlp.up_proj.weight").data for _ in range(2))
    other = make("bf16", seed=4).checkpoint.tensor("model.layers.0.mlp.up_proj.weight").data
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > 0.5


def test_a_tokenizer_that_is_not_there_is_named(make: Make, tmp_path: Path) -> None:
    script = importlib.import_module("make_model")
    with pytest.raises(SystemExit, match=r"has no tokenizer\.json: --tokenizer must name a Hugging Face folder"):
        script.main(["--shape", "tiny", "--format", "bf16", "--tokenizer", str(tmp_path), "--out", str(tmp_path / "x")])
    with pytest.raises(SystemExit, match="is no file: for gguf-q4_0, --tokenizer must name a GGUF file"):
        script.main(["--shape", "tiny", "--format", "gguf-q4_0", "--tokenizer", str(tmp_path), "--out", str(tmp_path)])
