"""``text_offset`` of completions: where each token begins in the choice's text, whatever the tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_engine import ScriptedServer
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from octavo.text import Tokenizer, load_tokenizer

TEXTS = ["Hello world", " two  spaces", "naïve café 世界", "a\n\nb", "x😀y", "…", "☃☃ ☃"]


def sentencepiece() -> Tokenizer:
    """As Llama 2's: "▁" for a space, bytes where there is no piece, one leading space left out of a text."""
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"Helowrdabxy\nnï", "▁He", "llo", "▁wor", "ld", "▁two"]
    merges = [("▁", "H"), ("l", "l")]
    backend = Backend(models.BPE({p: i for i, p in enumerate([*pieces, "▁H", "ll"])}, merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>"))


@pytest.fixture(scope="module", params=["llama2", "smollm2_gguf", "gemma3_gguf"])
def served(request: Any) -> ScriptedServer:
    if request.param == "llama2":
        return ScriptedServer(sentencepiece())
    path: Path = request.getfixturevalue(request.param)
    return ScriptedServer(load_tokenizer(path))


def checked(served: ScriptedServer, **fields: Any) -> tuple[str, list[int]]:
    """The text and the offsets: each token's text stands there, in a stream too."""
    fields = {"logprobs": 0, "max_tokens": 64, **fields}
    [choice] = served.post("/v1/completions", **fields)["choices"]
    text, logprobs = choice["text"], choice["logprobs"]
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets)
    special = {served.tokenizer.token_text(token) for token in served.tokenizer.special_ids}
    hidden = special if fields.get("skip_special_tokens", True) else set()
    for at, (token, offset) in enumerate(zip(logprobs["tokens"], offsets, strict=True)):
        end = offsets[at + 1] if at + 1 < len(offsets) else len(text)
        if token in hidden:
            assert end == offset
        elif token.startswith("bytes:"):
            assert end - offset <= 1
        else:
            assert text[offset:end] in (token, token.removeprefix(" ") if offset == 0 else token)
    pieces = [event["choices"][0] for event in served.stream("/v1/completions", **fields)]
    assert "".join(piece["text"] for piece in pieces) == text
    assert [at for piece in pieces if piece["logprobs"] for at in piece["logprobs"]["text_offset"]] == offsets
    return text, offsets


@pytest.mark.real_model
@pytest.mark.parametrize("text", TEXTS)
def test_offsets_fit_the_text(served: ScriptedServer, text: str) -> None:
    ids = served.tokenizer.encode(text, add_special_tokens=False)
    served.say(*ids)
    for prompt in ([1], "Hello"):
        assert checked(served, prompt=prompt)[0] in (text, " " + text)
    for cut in range(1, len(ids)):
        served.say(*ids[cut:])
        prompt = [1, *ids[:cut]]
        assert checked(served, prompt=prompt, echo=True)[0] == text
        assert checked(served, prompt=prompt, echo=True, skip_special_tokens=False)[0].endswith(text)
        checked(served, prompt=prompt)


@pytest.mark.real_model
def test_a_character_that_the_prompt_begins_is_echoed_whole(smollm2_gguf: Path) -> None:
    served = ScriptedServer(load_tokenizer(smollm2_gguf))
    ids = served.tokenizer.encode(" 世", add_special_tokens=False)
    text, offsets = "", []
    for cut in range(1, len(ids)):
        served.say(*ids[cut:])
        text, offsets = checked(served, prompt=ids[:cut], echo=True, max_tokens=len(ids) - cut)
        assert text == " 世"
    assert len(offsets) == len(ids)
    served.say("no")  # it never is
    assert checked(served, prompt=[432, 10813], echo=True)[0].endswith("�no")
    [choice] = served.post("/v1/completions", prompt=[432, 10813], echo=True, max_tokens=0)["choices"]
    assert choice["text"].count("�") == 1


@pytest.mark.real_model
def test_broken_bytes_count_as_the_text_shows_them(gemma3_gguf: Path) -> None:
    served = ScriptedServer(load_tokenizer(gemma3_gguf))
    byte = served.tokenizer.hf.convert_tokens_to_ids("<0x00>")
    assert served.tokenizer.token_bytes(byte) == b"\0"
    snow = [byte + value for value in "☃".encode()]
    served.say(*snow, *snow, "x")
    assert checked(served, prompt="a") == ("☃☃x", [0, 0, 0, 1, 1, 1, 2])
    served.say(*snow, snow[0], "x")
    [choice] = served.post("/v1/completions", prompt="a", logprobs=0)["choices"]
    assert (choice["text"], choice["logprobs"]["text_offset"][-1]) == ("����x", 4)
