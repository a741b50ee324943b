"""Real checkpoints: token for token what transformers makes of the same files."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from text.tokenizer.corpus import CORPUS

from octavo.errors import CheckpointError
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.real_model


@pytest.mark.parametrize("text", [text for text in CORPUS if "\u2581" not in text])  # which spells a space
def test_a_gguf_file_gives_a_text_back(real: Tokenizer, text: str) -> None:
    assert real.decode(real.encode(text, add_special_tokens=False), skip_special_tokens=False) == text


def test_white_space_before_a_digit_stays_whole(smollm2: Tokenizer) -> None:
    """llama.cpp's ids; transformers' reader of GGUF files makes 198, 198, 33 of "\\n\\n1"."""
    assert smollm2.encode("steps:\n\n1. Mix") == [13086, 42, 1116, 33, 30, 18212]


def test_special_ids_and_template_come_from_the_file(real: Tokenizer, judge: Any) -> None:
    assert (real.bos_token_id, real.eos_token_id, real.pad_token_id) == (
        judge.bos_token_id,
        judge.eos_token_id,
        judge.pad_token_id,
    )
    assert real.vocab_size == len(judge)
    ends = (
        {"<|endoftext|>", "<|im_end|>", "<reponame>"}
        if real.vocab_size < 100_000
        else {"<eos>", "<end_of_turn>", "</s>"}
    )
    assert set(real.token_names(sorted(real.eos_token_ids))) == ends, "as in llama.cpp"
    assert real.chat_template == judge.chat_template
    assert {*judge.all_special_ids} - {judge.convert_tokens_to_ids("<mask>")} <= real.special_ids


def test_a_folder_splits_text_like_autotokenizer(smollm2_folder: Path, gemma3_folder: Path) -> None:
    from transformers import AutoTokenizer

    for folder in (smollm2_folder, gemma3_folder):
        tokenizer, judge = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
        for text in CORPUS:
            assert tokenizer.encode(text, add_special_tokens=False) == judge.encode(text, add_special_tokens=False)
        assert tokenizer.eos_token_ids == {judge.eos_token_id}
        assert tokenizer.chat_template == judge.chat_template


def test_a_chat_prompt_is_the_one_of_transformers(smollm2: Tokenizer) -> None:
    messages = [{"role": "user", "content": "Hi <b>there</b> 😀"}, {"role": "assistant", "content": "Hello."}]
    assert smollm2.apply_chat_template(messages) == list(
        smollm2.hf.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    )
    # This template writes <|im_start|>, which is BOS, by itself.
    assert smollm2.apply_chat_template(messages)[0] == smollm2.bos_token_id


def test_bos_comes_once_where_the_text_brings_its_own(gemma3: Tokenizer) -> None:
    assert gemma3.encode("hi")[0] == gemma3.bos_token_id
    assert gemma3.encode("<bos>hi") == gemma3.encode("hi")
    assert gemma3.encode("<bos><bos>hi") == [2, *gemma3.encode("hi")]  # a second one in the text is the author's wish


def test_a_truncated_file_is_refused(smollm2_gguf: Path, tmp_path: Path) -> None:
    with smollm2_gguf.open("rb") as file:
        head = file.read(1_000_000)
    for size in (1_000_000, 500_000, 4_000, 30, 10, 4, 0):
        cut = tmp_path / f"{size}.gguf"
        cut.write_bytes(head[:size])
        with pytest.raises(CheckpointError, match=str(cut)):
            load_tokenizer(cut)


LOAD = """
import sys, logging
sys.modules["torch"] = None
from pathlib import Path
from octavo.text import load_tokenizer
assert "transformers" not in sys.modules
tokenizer = load_tokenizer(Path(sys.argv[1]))
print(tokenizer.encode("hello"), logging.getLogger("transformers").level)
"""


def test_loading_needs_no_torch_and_prints_nothing(smollm2_gguf: Path, smollm2_folder: Path) -> None:
    for path in (smollm2_gguf, smollm2_folder):
        done = subprocess.run([sys.executable, "-c", LOAD, path], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.stdout.endswith(f" {logging.WARNING}\n"), "the level of transformers' logger is the user's again"


def test_loading_does_not_import_torch_where_it_is_installed(smollm2_gguf: Path, smollm2_folder: Path) -> None:
    for path in (smollm2_gguf, smollm2_folder):
        script = LOAD.replace('sys.modules["torch"] = None', "") + '\nassert "torch" not in sys.modules'
        done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
