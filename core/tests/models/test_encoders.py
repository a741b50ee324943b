"""Encoders compute what transformers computes; decoders are pooled at what their output matrix reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.tiny import FAMILIES, random_tokens, tiny_checkpoint
from models.tiny_encoders import VOCAB, hidden_states, pair_logit, sentence_modules, tiny_encoder

from octavo.errors import CheckpointError
from octavo.graph import Interpreter, KVArrays, fuse
from octavo.graph.reference import sequence_inputs
from octavo.models import Model, load_model
from octavo.quant import dequantise


def pooled(model: Model, tokens: list[int]) -> np.ndarray:
    """The vector of one row."""
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    inputs = sequence_inputs(model.graph, tokens, block_size=16)
    kv = KVArrays(model.graph, 1 + inputs["block_tables"].size, 16)
    (vector,) = Interpreter(fuse(model.graph), weights).run(inputs, kv)["pooled"]
    return vector


def random_ids(count: int) -> list[int]:
    return np.random.default_rng(count).integers(5, VOCAB, count).tolist()


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("BertModel", {}),
    ("BertModel", {"type_vocab_size": 1, "hidden_act": "relu", "layer_norm_eps": 1e-5}),
    ("BertModel", {"num_attention_heads": 1, "hidden_act": "gelu_new", "num_hidden_layers": 1}),
    ("BertForMaskedLM", {}),
    ("RobertaModel", {"type_vocab_size": 1, "pad_token_id": 1}),
    ("XLMRobertaModel", {"pad_token_id": 3}),
]


@pytest.mark.parametrize(("architecture", "fields"), VARIANTS, ids=[f"{a}-{'-'.join(f)}" for a, f in VARIANTS])
def test_hidden_states_equal_transformers(architecture: str, fields: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_encoder(architecture, tmp_path, **fields)
    for count in (1, 2, 37, 70):
        tokens = random_ids(count)
        states = hidden_states(folder, tokens)
        for kind, expected in (("mean", states.mean(0)), ("cls", states[0]), ("lasttoken", states[-1])):
            sentence_modules(folder, {f"pooling_mode_{kind}_token" + "s" * (kind == "mean"): True}
                             if kind != "lasttoken" else {"pooling_mode_lasttoken": True})  # fmt: skip
            np.testing.assert_allclose(pooled(load_model(folder), tokens), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
def test_a_cross_encoder_s_logit_equals_transformers(architecture: str, tmp_path: Path) -> None:
    folder = tiny_encoder(architecture, tmp_path)
    model = load_model(folder)
    assert model.pooling is not None and (model.pooling.task, model.pooling.activation) == ("score", "sigmoid")
    tokens, types = random_ids(20), [0] * 8 + [1] * 12
    folded = [token + kind * VOCAB for token, kind in zip(tokens, types, strict=True)]
    wanted = pair_logit(folder, tokens, types)
    assert pooled(model, folded) == pytest.approx([wanted], rel=1e-4, abs=1e-5)
    assert abs(pooled(model, tokens)[0] - wanted) > 1e-3, "which text a token is of must matter"


@pytest.mark.parametrize("kind", ["mean", "last"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_is_pooled_after_its_last_norm(family: str, kind: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path)
    sentence_modules(folder, {"pooling_mode_mean_tokens" if kind == "mean" else "pooling_mode_lasttoken": True})
    tokens = random_tokens(60)
    states = hidden_states(folder, tokens)
    model = load_model(folder)
    expected = states.mean(0) if kind == "mean" else states[-1]
    np.testing.assert_allclose(pooled(model, tokens), expected, rtol=1e-3, atol=1e-4)
    assert model.pooling is not None and model.pooling.whole == (kind == "mean")
    assert "lm_head.weight" not in model.graph.weights
    assert load_model(folder, task="generate").pooling is None


def test_a_decoder_without_its_head_embeds_by_its_last_token(tmp_path: Path) -> None:
    import torch
    import transformers

    config = transformers.Qwen3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen3Model(config).save_pretrained(tmp_path)
    tokens = random_ids(30)
    model = load_model(tmp_path)
    assert model.pooling is not None and (model.pooling.kind, model.pooling.normalize) == ("last", True)
    np.testing.assert_allclose(pooled(model, tokens), hidden_states(tmp_path, tokens)[-1], rtol=1e-3, atol=1e-4)


def test_names_of_the_first_berts_are_understood(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tiny_encoder("BertModel", tmp_path)
    tokens = random_ids(9)
    before = pooled(load_model(folder), tokens)
    stored = load_file(folder / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in stored.items():
        for new, word in old.items():
            name = name.replace(new, word)
        renamed[name] = tensor
    save_file(renamed, folder / "model.safetensors")
    np.testing.assert_array_equal(pooled(load_model(folder), tokens), before)


@pytest.mark.parametrize(
    ("architecture", "fields", "complaint"),
    [
        ("BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ("BertModel", {"is_decoder": True}, "is_decoder is set"),
        ("BertModel", {"hidden_act": "mish"}, "activation 'mish'"),
        ("BertForSequenceClassification", {"num_labels": 3}, "3 labels"),
    ],
)
def test_what_would_change_the_numbers_is_refused(
    architecture: str, fields: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    import json

    folder = tiny_encoder(architecture, tmp_path, **({"num_labels": 3} if "num_labels" in fields else {}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, **{k: v for k, v in fields.items() if k != "num_labels"}})
    )
    with pytest.raises(CheckpointError, match=complaint):
        load_model(folder)
