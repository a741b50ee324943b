"""Tokenizers from model folders, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from text.tokenizer.gguf_files import byte_level, write_gguf

from octavo.errors import CheckpointError
from octavo.text import Tokenizer, load_tokenizer

END = "generation_config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as `save_pretrained` writes it: byte-level, three control tokens, a chat template."""
    saved = tmp_path / "model"
    section = byte_level("qwen2", chat_template="{{ messages[0].content }}")
    load_tokenizer(write_gguf(tmp_path / "model.gguf", section)).hf.save_pretrained(saved)
    return saved


def test_a_folder_gives_the_tokenizer_that_was_saved(folder: Path, tmp_path: Path) -> None:
    saved, original = load_tokenizer(folder), load_tokenizer(tmp_path / "model.gguf")
    for text in ("<|start|>hello  world 123<think>", "é € 😀"):
        assert saved.encode(text) == original.encode(text)
    assert saved.special_ids == original.special_ids
    assert (saved.bos_token_id, saved.eos_token_id, saved.pad_token_id) == (1, 2, None)
    assert saved.render_chat([{"role": "user", "content": "x"}]) == "x"


@pytest.mark.parametrize(
    ("config", "ends"), [(None, {2}), ({}, {2}), ({"eos_token_id": 0}, {0, 2}), ({"eos_token_id": [0, 3]}, {0, 2, 3})]
)
def test_what_ends_a_generation_is_in_generation_config(folder: Path, config: Any, ends: set[int]) -> None:
    if config is not None:
        (folder / END).write_text(json.dumps(config))
    assert load_tokenizer(folder).eos_token_ids == ends


@pytest.mark.parametrize("config", ["{", "[1]", '{"eos_token_id": "</s>"}', '{"eos_token_id": [1, null]}'])
def test_a_damaged_generation_config_is_refused(folder: Path, config: str) -> None:
    (folder / END).write_text(config)
    with pytest.raises(CheckpointError, match=END):
        load_tokenizer(folder)


def test_truncation_and_padding_of_a_training_run_are_ignored(folder: Path) -> None:
    file = folder / "tokenizer.json"
    backend = json.loads(file.read_text())
    backend["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(backend))
    assert len(load_tokenizer(folder).encode("abcdefgh")) > 2


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"the tokenizer in {tmp_path} cannot be loaded") as caught:
        load_tokenizer(tmp_path)
    assert "has no tokenizer.json" in str(caught.value) and "save_pretrained" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "{}", '{"version": "1.0", "model": {"type": "Nonsense"}}'])
def test_a_damaged_tokenizer_json_is_refused(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=f"the tokenizer in {folder} cannot be loaded"):
        load_tokenizer(folder)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: ...\n")
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.Evil"}}')
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}')
    with pytest.raises(
        CheckpointError, match=r"Python code of the checkpoint's, which is not run; convert it to a tokenizer\.json"
    ) as caught:
        load_tokenizer(tmp_path)
    assert not marker.exists()
    assert "trust_remote_code" not in str(caught.value), "an option that Octavo refuses is no cure"


def test_ids_outside_the_vocabulary_stand_for_nothing(folder: Path) -> None:
    tokenizer: Tokenizer = load_tokenizer(folder)
    [letter] = tokenizer.encode("z")
    for wrong in (-1, tokenizer.vocab_size, 10**9, 2**40):
        assert tokenizer.decode([letter, wrong, letter]) == "zz"
        assert tokenizer.token_bytes(wrong) == b""
        assert tokenizer.token_text(wrong) == ""


def test_a_part_of_a_character_has_its_bytes_but_no_text(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("😀")
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == "😀".encode()
    assert tokenizer.token_text(ids[0]) == "\ufffd"
    assert tokenizer.token_text(tokenizer.encode(" ")[0]) == " "


USER = [{"role": "user", "content": "x"}]


def shown(folder: Path, **options: Any) -> str:
    return load_tokenizer(folder).render_chat(USER, **options)


def test_the_template_of_a_processor_is_read(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    assert load_tokenizer(folder).chat_template is None
    file = folder / "chat_template.json"
    file.write_text(json.dumps({"chat_template": "json"}))
    assert shown(folder) == "json"
    file.write_text(json.dumps({"chat_template": [{"name": n, "template": n} for n in ("default", "tool_use")]}))
    assert (shown(folder), shown(folder, tools=[{}])) == ("default", "tool_use")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": "config"}))
    file.write_text(json.dumps({"chat_template": {"tool_use": "both"}}))
    assert (shown(folder), shown(folder, tools=[{}])) == ("config", "both")
    file.write_text(json.dumps({"chat_template": "json"}))
    assert shown(folder) == "json"
    (folder / "chat_template.jinja").write_text("jinja")
    assert shown(folder) == "jinja"


def test_further_templates_of_a_folder_are_read(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    assert (shown(folder), shown(folder, tools=[{}])) == ("x", "with tools")


@pytest.mark.parametrize("stored", ["{", "[]", "{}", '{"chat_template": 1}', '{"chat_template": {"default": null}}'])
def test_a_damaged_template_of_a_processor_is_refused(folder: Path, stored: str) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(stored)
    with pytest.raises(CheckpointError, match=r"chat_template\.json"):
        load_tokenizer(folder)
