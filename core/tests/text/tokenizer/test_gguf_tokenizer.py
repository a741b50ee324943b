"""Tokenizers from hand-made GGUF files: each key of the section means what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from text.tokenizer.corpus import CORPUS
from text.tokenizer.gguf_files import BYTE, CONTROL, NORMAL, USER_DEFINED, byte_level, sentencepiece, write_gguf

from octavo.errors import CheckpointError
from octavo.text import Tokenizer, load_tokenizer
from octavo.text.tokenizer.gguf_pretokenizers import PRE_TOKENIZERS
from octavo.text.tokenizer.gguf_sentencepiece import merges_from_scores


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def from_section(section: dict[str, Any], architecture: str = "llama") -> Tokenizer:
        return load_tokenizer(write_gguf(tmp_path / "model.gguf", section, architecture))

    return from_section


def by_transformers(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


AGREED = [
    *[(byte_level(pre), "llama") for pre in ("gpt-2", "qwen2", "qwen35", "deepseek-r1-qwen")],
    *[(byte_level(pre, **{"ggml.add_bos_token": True}), "llama") for pre in ("llama-bpe", "llama3")],
]
"""Kinds that transformers' reader splits as llama.cpp does, which is the judge: see `test_gguf_vectors`."""


@pytest.mark.parametrize(("section", "architecture"), AGREED)
def test_where_transformers_agrees_a_file_splits_text_like_it(
    tmp_path: Path, section: dict[str, Any], architecture: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", section, architecture)
    tokenizer, judge = load_tokenizer(path), by_transformers(path)
    if section["ggml.model"] == "gpt2":
        # transformers leaves this out for Llama 3, whose own tokenizer.json has it.
        judge.backend_tokenizer.model.ignore_merges = PRE_TOKENIZERS[section["ggml.pre"]].ignore_merges
    for text in [*CORPUS, "hello  hello\n\n123 1234", "The helloThe ABcdEF été €uro"]:
        ids = judge.encode(text)
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == judge.decode(ids, skip_special_tokens=True)
        assert tokenizer.decode(ids, skip_special_tokens=False) == judge.decode(ids)


def spelled(tokenizer: Tokenizer, text: str) -> list[str]:
    """The tokens of a text, as the vocabulary has them."""
    return tokenizer.token_names(tokenizer.encode(text, add_special_tokens=False))


def test_a_digit_stands_alone_where_the_name_says_so(load: Any) -> None:
    """So that white space before it stays whole, and no merge joins it: SmolLM, StarCoder, Command R."""
    assert spelled(load(byte_level("smollm")), "\n\n12") == ["ĊĊ", "1", "2"]
    assert spelled(load(byte_level("gpt-2")), "\n\n12") == ["Ċ", "Ċ", "12"]
    assert spelled(load(byte_level("llama-bpe")), "1231") == ["123", "1"]
    assert spelled(load(byte_level("qwen2")), "123") == ["1", "2", "3"]


def test_a_file_without_a_name_is_split_as_by_default_with_a_warning(
    load: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = load(byte_level(**{"ggml.pre": None}))
    assert caplog.text.count("has no tokenizer.ggml.pre") == 1
    named = load(byte_level("default"))
    for text in CORPUS:
        assert tokenizer.encode(text) == named.encode(text)
    assert spelled(tokenizer, "1231") == ["123", "1"]


def test_a_space_is_put_before_every_stretch_of_text_also_before_a_space(load: Any) -> None:
    tokenizer = load(sentencepiece())
    assert spelled(tokenizer, "hello") == ["▁hello"]
    assert spelled(tokenizer, " hello") == ["▁▁", "he", "ll", "o"]
    assert spelled(tokenizer, "<s>hello<think>hello") == ["<s>", "▁hello", "<think>", "▁hello"]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


def spaced(**changes: Any) -> dict[str, Any]:
    """A vocabulary of characters with merges, as Gemma 4's."""
    merges = ["\u2581 \u2581", "h e", "l l", "\u2581 he", "\u2581he ll", "\u2581hell o"]
    return sentencepiece(**{"ggml.model": "gemma4", "ggml.scores": None, "ggml.merges": merges, **changes})


@pytest.mark.parametrize("kind", [{}, {"ggml.model": "gpt2", "ggml.pre": "sarvam-moe"}])
def test_bpe_over_characters_spells_spaces_and_bytes_as_sentencepiece_does(load: Any, kind: dict[str, str]) -> None:
    tokenizer = load(spaced(**kind))
    assert spelled(tokenizer, "hello") == ["he", "ll", "o"], "nothing is put before a text"
    assert spelled(tokenizer, " hello  hello") == ["\u2581hello", "\u2581\u2581", "he", "ll", "o"]
    assert spelled(tokenizer, "h\u00df\n") == ["h", "<0xC3>", "<0x9F>", "<0x0A>"]
    for text in (" hello", "  hello\n\n \u00df", "a<think> b"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gemma_4_s_texts_begin_with_bos_whatever_the_file_says(load: Any) -> None:
    def around(**changes: Any) -> list[int]:
        ids: list[int] = load(spaced(**changes)).encode("")
        return ids

    sarvam = {"ggml.model": "gpt2", "ggml.pre": "sarvam-moe"}
    assert around() == around(**{"ggml.add_bos_token": False}) == [1]
    assert around(**sarvam) == []
    assert around(**sarvam, **{"ggml.add_bos_token": True}) == [1]


def test_bpe_over_characters_without_a_byte_s_token_is_refused(load: Any) -> None:
    section = spaced()
    section["ggml.tokens"][3 + 0x41] = "<other>"
    with pytest.raises(CheckpointError, match="lacks the byte token <0x41>"):
        load(section)


def test_unknown_is_matched_whole_as_control_tokens_are(load: Any) -> None:
    tokenizer = load(sentencepiece())
    assert spelled(tokenizer, "<unk>hello") == ["<unk>", "▁hello"]
    assert 0 in tokenizer.special_ids


def test_phi_3_s_special_tokens_swallow_the_space_behind_them(tmp_path: Path) -> None:
    section = sentencepiece()
    named = load_tokenizer(write_gguf(tmp_path / "phi.gguf", section, name="Phi-3 mini"))
    other = load_tokenizer(write_gguf(tmp_path / "other.gguf", section, name="Another"))
    assert spelled(named, "</s> hello") == ["</s>", "▁hello"]
    assert spelled(named, "<s> hello") == ["<s>", "▁▁", "he", "ll", "o"], "but for a few"
    assert spelled(other, "</s> hello") == ["</s>", "▁▁", "he", "ll", "o"]


def test_llama_3_takes_a_word_that_is_a_token_whole(load: Any) -> None:
    section = byte_level("llama-bpe")
    section["ggml.tokens"].append("xyz")  # no merge makes it
    section["ggml.token_type"].append(NORMAL)
    tokenizer = load(section)
    assert tokenizer.encode("xyz", add_special_tokens=False) == [tokenizer.vocab_size - 1]
    section["ggml.pre"] = "qwen2"
    assert len(load(section).encode("xyz", add_special_tokens=False)) == 3


def test_an_unknown_way_to_split_text_is_named_with_the_known_ones(load: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.pre is 'klingon'.*known: .*llama-bpe.*qwen2.*smollm"):
        load(byte_level("klingon"))


def test_an_unknown_kind_of_tokenizer_is_named_with_the_known_ones(load: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.model is 'bert'; supported: gemma4, gpt2, llama"):
        load(byte_level(**{"ggml.model": "bert"}))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "holds no tokenizer"),
        (byte_level(**{"ggml.merges": None}), "needs tokenizer.ggml.merges"),
        (sentencepiece(**{"ggml.model": "gemma4"}), "needs tokenizer.ggml.merges"),
        (byte_level(**{"ggml.merges": ["h e", "he x"]}), "'he x', which does not join two tokens"),
        (byte_level(**{"ggml.merges": ["he"]}), "'he', which does not join two tokens"),
        (byte_level(**{"ggml.token_type": [1, 1]}), "token_type has 2 entries for"),
        (byte_level(**{"ggml.bos_token_id": 70_000}), "bos_token_id is 70000, outside the vocabulary of"),
        (byte_level(**{"ggml.eos_token_id": "two"}), "eos_token_id is str 'two'; expected int"),
        (byte_level(**{"ggml.tokens": [1, 2, 3], "ggml.token_type": None}), "tokens holds int; expected strings"),
        (sentencepiece(**{"ggml.scores": None}), "needs tokenizer.ggml.scores"),
        (sentencepiece(**{"ggml.scores": ["a"] * 344}), "ggml.scores"),
    ],
)
def test_a_damaged_section_is_refused_by_name(load: Any, section: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(section)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        load_tokenizer(path)
    with pytest.raises(CheckpointError, match=r"missing\.gguf"):
        load_tokenizer(tmp_path / "missing.gguf")


def test_special_tokens_around_a_text_are_what_the_file_asks_for(load: Any) -> None:
    def around(section: dict[str, Any]) -> list[int]:
        ids: list[int] = load(section).encode("")
        return ids

    assert around(byte_level()) == []
    assert around(byte_level(**{"ggml.add_bos_token": True})) == [1]
    assert around(byte_level(**{"ggml.add_bos_token": True, "ggml.add_eos_token": True})) == [1, 2]
    assert around(byte_level("llama-bpe")) == [1], "Llama 3 begins with BOS unless the file denies it"
    assert around(byte_level("llama-bpe", **{"ggml.add_bos_token": False})) == []
    assert around(sentencepiece()) == [1], "so does SentencePiece"
    assert around(sentencepiece(**{"ggml.add_bos_token": False})) == []
    assert around(sentencepiece(**{"ggml.bos_token_id": None})) == []


def test_the_space_before_a_text_is_what_the_file_asks_for(load: Any) -> None:
    with_space, without = load(sentencepiece()), load(sentencepiece(**{"ggml.add_space_prefix": False}))
    assert with_space.token_text(with_space.encode("hello")[1]) == " hello"
    assert without.token_text(without.encode("hello")[1]) != " hello"
    for text in ("hello", " hello", "  hello", "hello ", " "):
        assert without.decode(without.encode(text)) == text
    assert with_space.decode(with_space.encode("hello ")) == "hello "


def test_no_token_is_added_beyond_the_vocabulary(load: Any) -> None:
    section = byte_level("qwen2", **{"ggml.unknown_token_id": None})
    section["ggml.tokens"][0] = "<|other|>"  # the file has no <|endoftext|>, GPT-2's default for everything
    assert load(section).vocab_size == len(section["ggml.tokens"])


def test_control_tokens_are_matched_whole_and_left_out_of_text(load: Any) -> None:
    tokenizer = load(byte_level("qwen2"))
    ids = tokenizer.encode("<|start|>hello<think><|end|>")
    assert [ids[0], *ids[-2:]] == [1, 3, 2]
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(ids) == "hello<think>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|start|>hello<think><|end|>"


def test_control_tokens_may_use_any_characters(load: Any) -> None:
    section = byte_level("deepseek-r1-qwen")
    section["ggml.tokens"][1] = "<｜begin▁of▁sentence｜>"
    tokenizer = load(section)
    assert tokenizer.encode("<｜begin▁of▁sentence｜>h") == [1, tokenizer.encode("h")[0]]
    assert tokenizer.token_text(1) == "<｜begin▁of▁sentence｜>"
    assert tokenizer.vocab_size == len(section["ggml.tokens"])


def test_a_normal_token_in_plain_text_is_never_made_of_text_and_keeps_its_own(load: Any) -> None:
    """Also where the alphabet's spelling of it is a token besides, as for 43 words of Command R."""
    section = byte_level("llama-bpe")
    section["ggml.tokens"] += ["\u65e5\u672c", "\u20ac"]
    section["ggml.token_type"] += [NORMAL, NORMAL]
    tokenizer = load(section)
    japan, euro = len(section["ggml.tokens"]) - 2, len(section["ggml.tokens"]) - 1
    assert len(tokenizer.encode("\u65e5\u672c", add_special_tokens=False)) == 6, "as in llama.cpp: one a byte"
    assert tokenizer.token_text(japan) == tokenizer.decode([japan]) == "\u65e5\u672c"
    assert tokenizer.decode([euro, japan]) == "\u20ac\u65e5\u672c"
    section["ggml.tokens"].append("\u00e2\u0124\u00ac")  # the three bytes of the euro sign
    section["ggml.token_type"].append(NORMAL)
    both = load(section)
    assert both.token_text(euro) == both.token_text(euro + 1) == "\u20ac"
    assert not {euro, euro + 1} & {*both.absent_ids(both.vocab_size)}


def test_a_token_that_is_matched_whole_decodes_as_it_is_written(load: Any) -> None:
    """Though its characters spell bytes in the alphabet, as those of DeepSeek Coder's "\u00f5"."""
    section = byte_level("gpt-2")
    user = section["ggml.tokens"].index("\u00f5")
    section["ggml.token_type"][user] = USER_DEFINED
    control = len(section["ggml.tokens"])
    section["ggml.tokens"].append("<d\u00e9but>")
    section["ggml.token_type"].append(CONTROL)
    tokenizer = load(section)
    half = tokenizer.encode("\u00e8")[:1]  # the first byte of two
    assert tokenizer.encode("a\u00f5<d\u00e9but>")[-2:] == [user, control]
    assert (
        tokenizer.token_bytes(user) == "\u00f5".encode() and tokenizer.token_bytes(control) == "<d\u00e9but>".encode()
    )
    for ids, text in (
        ([user], "\u00f5"),
        ([control, user], "<d\u00e9but>\u00f5"),
        ([*half, user, *half], "\ufffd\u00f5\ufffd"),
    ):
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        for cut in range(len(ids) + 1):
            before = tokenizer.decode_open(ids[:cut], skip_special_tokens=False)
            stream = tokenizer.detokenizer(ids[:cut], skip_special_tokens=False)
            assert before + stream.push(ids[cut:]) + stream.finish() == text
    assert tokenizer.decode([control, user]) == "\u00f5"


def test_a_special_token_of_sentencepiece_keeps_the_character_that_spells_a_space(load: Any) -> None:
    section = sentencepiece()
    first = len(section["ggml.tokens"])
    section["ggml.tokens"] += ["<a\u2581b>", "<0x41>\u2581"]
    section["ggml.token_type"] += [CONTROL, USER_DEFINED]
    section["ggml.scores"] += [0.0, 0.0]
    tokenizer = load(section)
    assert tokenizer.encode("<a\u2581b>", add_special_tokens=False) == [first]
    assert tokenizer.token_text(first) == tokenizer.decode([first], skip_special_tokens=False) == "<a\u2581b>"
    ids = tokenizer.encode("hello<0x41>\u2581hello", add_special_tokens=False)
    assert tokenizer.decode(ids) == "hello<0x41>\u2581 hello", "as in llama.cpp: a space behind each such token"


def test_a_byte_token_of_a_byte_level_vocabulary_is_its_byte(load: Any) -> None:
    section = byte_level("gpt-2")
    section["ggml.tokens"] += ["<0xC3>", "<0xA9>"]
    section["ggml.token_type"] += [BYTE, BYTE]
    tokenizer = load(section)
    assert tokenizer.decode([tokenizer.vocab_size - 2, tokenizer.vocab_size - 1]) == "\u00e9"


def ends(load: Any, *tokens: str, **section: Any) -> set[str]:
    """The tokens that end a generation, of a vocabulary that has these as its first ones, all normal."""
    given = byte_level(**{"ggml.eos_token_id": None, **section})
    given["ggml.tokens"][: len(tokens)] = tokens
    given["ggml.token_type"][:4] = [NORMAL] * 4
    tokenizer = load(given)
    return {tokenizer.token_names([token])[0] for token in tokenizer.eos_token_ids}


def test_the_file_s_roles_end_a_generation_and_so_do_tokens_of_some_texts(load: Any) -> None:
    assert ends(load, "[a]", "[b]", "[c]", "[d]") == set()
    assert ends(load, "[a]", "[b]", "[c]", "[d]", **{"ggml.eos_token_id": 1, "ggml.eot_token_id": 0}) == {"[a]", "[b]"}
    assert ends(load, "[a]", "[b]", "[c]", "[d]", **{"ggml.eom_token_id": 3}) == {"[d]"}
    assert ends(load, "<|endoftext|>", "<|im_end|>", "<|other|>", "[PAD]") == {"<|endoftext|>", "<|im_end|>", "[PAD]"}
    assert ends(load, "[PAD]", "[x]", "[y]", "[z]", **{"ggml.fim_pad_token_id": 2}) == {"[y]"}, "the file knows better"


def test_a_token_that_ends_a_generation_is_special_whatever_kind_the_file_gives_it(load: Any) -> None:
    section = byte_level()
    section["ggml.token_type"][2] = NORMAL
    tokenizer = load(section)
    assert tokenizer.encode("h<|end|>")[-1] == 2 and 2 in tokenizer.special_ids


@pytest.mark.parametrize(
    "text", ["<|fim_prefix|>", "<fim_suffix>", "<\uff5cfim\u2581end\uff5c>", "\u2581<PRE>", "<|fim_pad|>"]
)
def test_tokens_of_fill_in_the_middle_are_special_unless_the_file_names_others(load: Any, text: str) -> None:
    """DeepSeek Coder's file calls its own user-defined, so that they would be shown."""
    section = byte_level("gpt-2")
    section["ggml.tokens"][3], section["ggml.token_type"][3] = text, NORMAL
    tokenizer = load(section)
    assert tokenizer.encode(f"a{text}b")[1] == 3 and 3 in tokenizer.special_ids
    assert tokenizer.decode(tokenizer.encode(f"a{text}b")) == "ab"
    roles = ("prefix", "suffix", "fim_mid", "fim_pad")  # the first two are the keys of older files
    named = load({**section, **{f"ggml.{role}_token_id": 9 for role in roles}})
    assert 3 not in named.special_ids and len(named.encode(text)) > 1


def test_an_end_of_a_message_is_no_end_of_a_turn_in_harmony(load: Any) -> None:
    assert ends(load, "<|end|>", "<|return|>", "[x]", "[y]") == {"<|end|>", "<|return|>"}
    assert ends(load, "<|end|>", "<|return|>", "<|call|>", "[y]") == {"<|return|>", "<|call|>"}
    assert ends(load, "<|end|>", "<|flush|>", "<|calls|>", "[y]") == {"<|flush|>", "<|calls|>"}
    assert ends(load, "</s>", "<|tool_response>", "[x]", "[y]") == {"<|tool_response>"}


def test_a_token_that_ends_nothing_after_all_is_text(load: Any) -> None:
    section = byte_level(**{"ggml.eos_token_id": None, "ggml.bos_token_id": None, "ggml.unknown_token_id": None})
    section["ggml.tokens"][:3] = ["<|end|>", "<|return|>", "<|call|>"]
    tokenizer = load(section)
    assert tokenizer.decode(tokenizer.encode("a<|end|>b<|return|>")) == "a<|end|>b"
    section["ggml.tokens"][:3] = ["</s>", "<|tool_response>", "[x]"]
    tokenizer = load(section)
    assert spelled(tokenizer, "</s>") == ["<", "/", "s", ">"]


def test_a_file_may_have_a_template_of_its_own_for_tools(load: Any) -> None:
    tokenizer = load(byte_level(**{"chat_template": "plain", "chat_template.tool_use": "with {{ tools | length }}"}))
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.chat_template == "plain"
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[{"type": "function"}]) == "with 1"


def test_merges_follow_the_scores_and_then_the_longer_left_part() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "abc", "ca"]
    scores = [0.0, 0.0, 0.0, -2.0, -1.0, -3.0, -1.0]
    assert merges_from_scores(tokens, scores, set(tokens)) == [
        ("b", "c"),
        ("c", "a"),
        ("a", "b"),
        ("ab", "c"),
        ("a", "bc"),
    ]
    tied = merges_from_scores(tokens, [0.0] * 7, set(tokens))
    assert tied == [("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "c"), ("c", "a")]
