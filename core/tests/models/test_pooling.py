"""What the files beside config.json say about pooling, and which task a model gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models.tiny import tiny_checkpoint
from models.tiny_encoders import sentence_modules, tiny_encoder

from octavo.errors import CheckpointError, ConfigError
from octavo.models import load_model
from octavo.models.pooling import (
    config_overrides,
    matryoshka,
    normalizes,
    score_activation,
    stored_pooling,
    trained_length,
)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True}, "first"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["cls"]}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_kind_of_pooling_is_read(config: dict[str, object], kind: str, tmp_path: Path) -> None:
    sentence_modules(tmp_path, config)
    assert stored_pooling(tmp_path) == kind


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode": "weightedmean"},
    ],
)
def test_pooling_that_is_not_known_is_refused(config: dict[str, object], tmp_path: Path) -> None:
    sentence_modules(tmp_path, config)
    with pytest.raises(CheckpointError, match=r"1_Pooling.*not supported; known: one of pooling_mode_mean"):
        stored_pooling(tmp_path)


def test_a_module_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense", "path": "2"}]))
    with pytest.raises(CheckpointError, match=r"Dense' is not supported"):
        stored_pooling(tmp_path)
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(CheckpointError, match="JSON array"):
        stored_pooling(tmp_path)
    sentence_modules(tmp_path, None)
    with pytest.raises(CheckpointError, match="0 Pooling modules"):
        stored_pooling(tmp_path)


def test_embeddings_are_normalised_as_the_modules_say(tmp_path: Path) -> None:
    assert normalizes(tmp_path) and stored_pooling(tmp_path) is None
    sentence_modules(tmp_path, {"pooling_mode": "mean"}, normalize=False)
    assert not normalizes(tmp_path)
    sentence_modules(tmp_path, {"pooling_mode": "mean"})
    assert normalizes(tmp_path)


def test_the_length_that_a_model_was_trained_for(tmp_path: Path) -> None:
    assert trained_length(tmp_path) is None
    file = tmp_path / "sentence_bert_config.json"
    for text, length in (('{"max_seq_length": 256}', 256), ('{"max_seq_length": null}', None), ("{}", None)):
        file.write_text(text)
        assert trained_length(tmp_path) == length
    file.write_text('{"max_seq_length": "long"}')
    with pytest.raises(CheckpointError, match="max_seq_length is 'long'"):
        trained_length(tmp_path)


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "xlm-roberta"])
def test_older_names_of_the_sentence_configuration_are_read(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"sentence_{kind}_config.json"
    file.write_text('{"max_seq_length": 77, "config_args": {"is_causal": false, "trust_remote_code": true}}')
    assert trained_length(tmp_path) == 77
    assert config_overrides(tmp_path) == {"is_causal": False}
    file.write_text('{"config_args": 5}')
    with pytest.raises(CheckpointError, match=f"sentence_{kind}_config.json: config_args is 5; it must be an object"):
        config_overrides(tmp_path)


def test_lower_case_is_refused_where_the_tokenizer_keeps_the_case(tmp_path: Path, minilm: Path) -> None:
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(CheckpointError, match=r"do_lower_case is True, .* send texts in lower case"):
        config_overrides(tmp_path)
    (tmp_path / "tokenizer.json").write_text((minilm / "tokenizer.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert config_overrides(tmp_path) == {}, "an uncased tokenizer does it anyway"


@pytest.mark.parametrize("path", ["/etc", "../elsewhere", 5, "a/../../b"])
def test_a_module_lies_inside_the_folder(path: object, tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": path}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="is no folder inside the model's"):
        stored_pooling(tmp_path)


def test_a_default_prompt_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tiny_encoder("BertModel", tmp_path)
    (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"q": "query: "}, "default_prompt_name": "q"}'
    )
    load_model(folder)
    (record,) = caplog.records
    assert "default_prompt_name is 'q'; prompts are not put before texts here" in record.getMessage()


def test_json_without_a_bottom_is_not_json(tmp_path: Path) -> None:
    folder = tiny_encoder("BertModel", tmp_path)
    (folder / "config.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        load_model(folder)


def test_shorter_lengths_and_activations() -> None:
    assert matryoshka({}) is None and matryoshka({"is_matryoshka": True}) == ()
    assert matryoshka({"matryoshka_dimensions": [64, 32]}) == (32, 64)
    with pytest.raises(CheckpointError, match="matryoshka_dimensions"):
        matryoshka({"matryoshka_dimensions": ["many"]})
    assert score_activation({}) == "sigmoid"
    name = "torch.nn.modules.linear.Identity"
    assert score_activation({"sentence_transformers": {"activation_fn": name}}) == "none"
    assert score_activation({"sbert_ce_default_activation_function": name}) == "none"
    with pytest.raises(CheckpointError, match="Tanh"):
        score_activation({"sbert_ce_default_activation_function": "torch.nn.Tanh"})


def test_the_task_follows_from_the_checkpoint_and_may_be_asked_for(tmp_path: Path) -> None:
    decoder = tiny_checkpoint("llama", tmp_path)
    assert load_model(decoder).pooling is None
    asked = load_model(decoder, task="embed").pooling
    assert asked is not None and (asked.kind, asked.whole, asked.width) == ("last", False, 64)
    with pytest.raises(ConfigError, match="no head that scores"):
        load_model(decoder, task="score")

    encoder = tiny_encoder("BertModel", tmp_path / "encoder")
    found = load_model(encoder).pooling
    assert found is not None and (found.task, found.kind, found.whole) == ("embed", "first", True)
    with pytest.raises(ConfigError, match="is an encoder"):
        load_model(encoder, task="generate")

    reranker = tiny_encoder("BertForSequenceClassification", tmp_path / "reranker")
    for task in ("generate", "embed"):
        with pytest.raises(ConfigError, match="scores pairs of texts and nothing else"):
            load_model(reranker, task=task)  # type: ignore[arg-type]
