"""Bad words: no tokens spell them, whatever way they take."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from octavo.errors import RequestError
from octavo.platform.step import Words
from octavo.runner.masks import allowed_tokens, pack, word_count
from octavo.sampling import MAX_BAD_WORD_BYTES, SamplingParams
from octavo.step_plan import TokenConstraint
from octavo.text import Tokenizer
from octavo.text.tokenizer.bad_words import BadWords, contributions


def watch(tokenizer: Tokenizer, *words: str, **params: object) -> TokenConstraint:
    asked = SamplingParams(bad_words=words, **params)  # type: ignore[arg-type]
    _, constraint = BadWords(tokenizer, tokenizer.vocab_size).prepare(asked, None)
    assert constraint is not None
    return constraint


def forbidden(constraint: TokenConstraint, vocab: int) -> set[int]:
    words = np.empty(word_count(vocab), np.uint32)
    assert constraint.mask(words) is None
    return set(np.flatnonzero(~allowed_tokens(words, vocab)).tolist())


def completing(before: bytes, words: list[bytes], pieces: list[bytes]) -> set[int]:
    """The slow way: tokens behind which a word is there that was not there before."""
    assert not any(word in before for word in words)
    return {token for token, piece in enumerate(pieces) if piece and any(word in before + piece for word in words)}


@pytest.mark.parametrize(
    "words",
    [
        ["Paris"],
        ["exaggerated"],
        ["aab", "ab a", "b"],
        ["ana", "banana", "nan"],
        ["né", "日本語", "🎉"],
        ["aaaa"],
        [" "],
    ],
)
def test_the_tokens_that_complete_a_word_are_forbidden_and_no_others(real: Tokenizer, words: list[str]) -> None:
    pieces = contributions(real, real.vocab_size, skips_special=True)
    bad = [word.encode() for word in words]
    rng = random.Random(7)
    near = [t for t, piece in enumerate(pieces) if 0 < len(piece) < 4 and any(piece.strip() in word for word in bad)]
    constraint, text = watch(real, *words), b""
    for step in range(4):
        expected = completing(text[-40:], bad, pieces)
        assert forbidden(constraint, real.vocab_size) == expected
        token = rng.choice([t for t in near if t not in expected] or [0])
        constraint = constraint.fork() if step % 3 == 0 else constraint
        assert not constraint.accept(token)
        text += pieces[token]


def test_every_spelling_is_forbidden(smollm2: Tokenizer) -> None:
    """Letter by letter, behind a space, and inside of a longer word."""
    for spelled in ("exaggerated", " exaggerated", "unexaggerated", " exaggeratedly"):
        for ids in (smollm2.encode(spelled), [smollm2.encode(letter)[0] for letter in spelled]):
            constraint = watch(smollm2, "exaggerated")
            taken = [token in forbidden(constraint, smollm2.vocab_size) or constraint.accept(token) for token in ids]
            assert any(taken), spelled


def test_capitals_count_and_spaces_before_do_not(smollm2: Tokenizer) -> None:
    (capital,), (small,) = smollm2.encode(" The"), smollm2.encode(" the")
    for word in ("The", " The", "  The"):
        found = forbidden(watch(smollm2, word), smollm2.vocab_size)
        assert capital in found and small not in found


def test_special_tokens_write_nothing_between_the_parts_of_a_word(smollm2: Tokenizer) -> None:
    end = smollm2.eos_token_id
    assert end is not None
    constraint = watch(smollm2, "Paris")
    constraint.accept(smollm2.encode("Par")[0])
    before = forbidden(constraint, smollm2.vocab_size)
    assert end not in before
    constraint.accept(end)
    assert forbidden(constraint, smollm2.vocab_size) == before
    shown = watch(smollm2, "Paris", skip_special_tokens=False)
    shown.accept(smollm2.encode("Par")[0])
    shown.accept(end)
    assert forbidden(shown, smollm2.vocab_size) != before


def test_the_name_of_a_special_token_forbids_the_token(smollm2: Tokenizer) -> None:
    end = smollm2.eos_token_id
    assert end is not None
    params, _ = BadWords(smollm2, smollm2.vocab_size).prepare(
        SamplingParams(bad_words=[smollm2.token_text(end), "x"]), None
    )
    assert params.bad_word_ids == ((end,),)


@dataclass
class Inner:
    """Lets some tokens come, and is complete after one of them."""

    tokens: tuple[int, ...]
    taken: list[int] = field(default_factory=list)
    ends: frozenset[int] = frozenset({0})

    def mask(self, out: Words) -> str | None:
        out[:] = pack(self.tokens, len(out) * 32)
        return None

    def accept(self, token: int) -> bool:
        self.taken.append(token)
        return True

    def fork(self) -> Inner:
        return replace(self, taken=list(self.taken))


def test_a_constraint_goes_on_beside_it(smollm2: Tokenizer) -> None:
    paris, rome = smollm2.encode(" Paris")[0], smollm2.encode(" Rome")[0]
    inner = Inner((paris, rome))
    params, constraint = BadWords(smollm2, smollm2.vocab_size).prepare(SamplingParams(bad_words=["Paris"]), inner)
    assert constraint is not None and constraint.ends == {0}
    assert set(range(smollm2.vocab_size)) - forbidden(constraint, smollm2.vocab_size) == {rome}
    assert constraint.fork().accept(rome) and inner.taken == []
    assert constraint.accept(rome) and inner.taken == [rome]
    assert params.bad_word_ids == ()


@pytest.mark.parametrize("bad", [None, [], [(5, 6)], [[7]]])
def test_what_is_ids_already_stays(smollm2: Tokenizer, bad: list[tuple[int, ...]] | None) -> None:
    params = SamplingParams(bad_words=bad)
    words = BadWords(smollm2, smollm2.vocab_size)
    assert words.ready(params)
    assert words.prepare(params, None) == (params, None)


def test_the_rest_of_the_parameters_stays(smollm2: Tokenizer) -> None:
    params = SamplingParams(bad_words=["x", (4, 5)], temperature=0.3, stop=["a"], seed=4, logit_bias={3: 1.0})
    words = BadWords(smollm2, smollm2.vocab_size)
    assert not words.ready(params)
    made, _ = words.prepare(params, None)
    assert words.ready(params)
    assert replace(made, bad_words=["x", (4, 5)]) == params and made.bad_word_ids == ((4, 5),)


def test_words_of_any_length_are_bounded_together() -> None:
    SamplingParams(bad_words=["é" * (MAX_BAD_WORD_BYTES // 2)])
    with pytest.raises(RequestError, match=f"at most {MAX_BAD_WORD_BYTES} bytes") as caught:
        SamplingParams(bad_words=["a", "é" * (MAX_BAD_WORD_BYTES // 2)])
    assert caught.value.param == "bad_words"


def test_a_lone_surrogate_is_no_word(smollm2: Tokenizer) -> None:
    with pytest.raises(RequestError, match="lone surrogate") as caught:
        watch(smollm2, "a\ud800")
    assert caught.value.param == "bad_words"


def test_a_word_longer_than_every_token_is_followed_to_its_end(smollm2: Tokenizer) -> None:
    word = "ab" * 2000
    ids = smollm2.encode(word)
    constraint = watch(smollm2, word)
    for token in ids[:-1]:
        assert token not in forbidden(constraint, smollm2.vocab_size)
        constraint.accept(token)
    assert ids[-1] in forbidden(constraint, smollm2.vocab_size)


def test_a_decoder_of_another_kind_is_watched_too() -> None:
    """Metaspace: a token's space shows only behind another token."""
    pieces = ["<unk>", "▁", "a", "b", "▁a", "▁b", "ab", "▁ab", "ba"]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
    constraint = watch(tokenizer, "b a")
    assert forbidden(constraint, len(pieces)) == set()
    constraint.accept(pieces.index("ab"))
    assert {pieces[t] for t in forbidden(constraint, len(pieces))} == {"▁a", "▁ab"}
