"""A model's vocabulary as llguidance takes it: the bytes of every token, and how forced text is cut into tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llguidance import LLTokenizer, TokenizerWrapper

from octavo.errors import RequestError
from octavo.text.tokenizer.pieces import Spelling
from octavo.text.tokenizer.tokenizer import Tokenizer

_SLICES = (
    r"[\x20\x0A\x0D\x09]+",
    *(rf'[^"\\\x00-\x1F\x7F]{{1,{most}}}' for most in (4, 8, 12, 20, 30)),
    r"[a-zA-Z0-9]+",
    r'[^"\\\x00-\x1F\x7F]+',
)
"""Sets of tokens that a mask takes as a whole where its constraint lets them all come: spaces, what a JSON string may
have, by length, and letters and digits, which mail addresses, host names and most patterns let come. Of lengths there
are more than in llguidance's own, for strings with a maximal one."""
_MARK = "\x02"
"""Stands before a text that some tokenizers would give a space at its beginning."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by id, as values: another process can have them too."""

    tokens: tuple[bytes, ...]
    """The bytes of each, for a special one its name; nothing for ids that only pad the model's logits."""
    special: tuple[int, ...]
    """Tokens that no text spells."""
    ends: tuple[int, ...]
    """Those of them that end a sequence."""

    @property
    def digest(self) -> str:
        """Names the vocabulary among others."""
        lengths = ",".join(str(len(token)) for token in self.tokens)
        return hashlib.sha256(f"{lengths};{self.special};{self.ends};".encode() + b"".join(self.tokens)).hexdigest()

    @property
    def names(self) -> dict[str, int]:
        """Special tokens by name."""
        return {self.tokens[token].decode(errors="replace"): token for token in self.special}


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int, ends: frozenset[int]) -> Vocabulary:
    """The vocabulary of a model with ``vocab_size`` logits.

    Raises RequestError if what a token contributes to a text depends on its neighbours, as such text cannot be held to
    a constraint token by token, and if no token ends a sequence.
    """
    if tokenizer.pieces.spelling is Spelling.OTHER:
        raise RequestError(
            "structured output needs a tokenizer whose tokens are bytes of the text (byte-level BPE or SentencePiece); "
            "this model's is of another kind"
        )
    closing = sorted(token for token in ends if token < vocab_size)
    if not closing:
        raise RequestError("structured output needs an end-of-sequence token, and this model has none")
    tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
    special = sorted(token for token in tokenizer.special_ids | ends if token < vocab_size)
    for token in special:
        tokens[token] = tokens[token] or f"<|special {token}|>".encode()
    return Vocabulary(tuple(tokens), tuple(special), tuple(closing))


def ll_tokenizer(
    vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]] | None = None, *, fast: bool = True
) -> LLTokenizer:
    """llguidance's own representation of a vocabulary; takes seconds for one of 256 thousand tokens, ``fast`` masks
    half of it.

    Text that a constraint leaves no choice about is cut into tokens by ``encode``, as the model has learnt to write it;
    without, by the longest tokens.
    """
    return LLTokenizer(
        TokenizerWrapper(_Cutter(vocabulary, encode)),
        n_vocab=len(vocabulary.tokens),
        eos_token=list(vocabulary.ends),
        slices=list(_SLICES) if fast else [],
    )


class _Cutter:
    """What `TokenizerWrapper` asks for. The tokens of a call spell its text, whatever ``encode`` makes of it."""

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]] | None) -> None:
        self.tokens = vocabulary.tokens
        self.special_token_ids = list(vocabulary.special)
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self._encode = encode
        self._special = frozenset(vocabulary.special)
        self._ids = {data: i for i, data in enumerate(vocabulary.tokens) if data and i not in self._special}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, data: bytes | str) -> list[int]:
        """The ids of a text."""
        raw = data if isinstance(data, bytes) else data.encode()
        text = raw.decode(errors="replace")
        if self._encode is not None and "\ufffd" not in text:
            for mark in ("", _MARK):
                ids = list(self._encode(mark + text))
                if mark and mark.encode() in (first := [self.tokens[i] for i in ids[:2]]):
                    del ids[: first.index(mark.encode()) + 1]
                if self._spell(ids, raw):
                    return ids
        return self._longest_first(raw)

    def _spell(self, ids: Sequence[int], raw: bytes) -> bool:
        known = all(i < len(self.tokens) and i not in self._special for i in ids)
        return known and b"".join(self.tokens[i] for i in ids) == raw

    def _longest_first(self, raw: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(raw):
            sizes = range(min(self._longest, len(raw) - at), 0, -1)
            size = next((size for size in sizes if raw[at : at + size] in self._ids), 0)
            if size:
                ids.append(self._ids[raw[at : at + size]])
            at += size or 1  # a byte that no token has cannot be written at all
        return ids
