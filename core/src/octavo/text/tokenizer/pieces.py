"""What each token contributes to decoded text, read off the decoder of a `tokenizers.Tokenizer`.

The decoders of nearly all language models are of two kinds, and for those the contribution of a token is a string of
bytes that no neighbour changes, so that text can be decoded token by token in constant time:

* BYTE_LEVEL: a token spells bytes in the alphabet of `octavo.text.tokenizer.alphabet`; all bytes together are
  read as UTF-8.
* BYTE_FALLBACK: a token is text with "▁" for a space, or one byte ("<0xE2>"). A run of byte tokens is UTF-8; if any
  part of the run is invalid, each of its bytes becomes U+FFFD. Some vocabularies drop leading spaces of the whole text.

Anything else (WordPiece, Metaspace, …) is OTHER: only the decoder itself knows, and what it says may depend on the
neighbours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tokenizers import Tokenizer

from octavo.text.tokenizer.alphabet import CHARACTER_TO_BYTE

TOKEN_IDS = range(2**32)  # what the tokenizers library takes for an id; it raises for any other number

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How vocabularies name a byte that no other token covers."""


class Spelling(Enum):
    """The kinds of decoder, see above."""

    BYTE_LEVEL = "byte-level"
    BYTE_FALLBACK = "byte-fallback"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Piece:
    """One token's contribution.

    `lone_byte`: it is one byte of a run (BYTE_FALLBACK only). `absent`: the vocabulary has no such token; a run goes on
    across it, which it does not across a token without text.
    """

    data: bytes
    lone_byte: bool = False
    absent: bool = False


_NOTHING = Piece(b"", absent=True)


class Pieces:
    """The pieces of a vocabulary by token id, computed once each.

    `spelling` is the kind of decoder, `strip` how many leading spaces the text of a whole sequence loses. `literals`
    are the bytes of tokens of which the decoder would make something else.
    """

    def __init__(self, backend: Tokenizer, literals: Mapping[int, bytes] | None = None) -> None:
        self._backend = backend
        self._known = {token_id: Piece(data) for token_id, data in (literals or {}).items()}
        decoder = backend.decoder
        state: dict[str, Any] = {} if decoder is None else json.loads(decoder.__getstate__())
        self.spelling, self._replace, self.strip = _analyse(state)

    def __getitem__(self, token_id: int) -> Piece:
        """The piece of a token; nothing for an id that the vocabulary does not have (models pad their vocabulary)."""
        piece = self._known.get(token_id)
        if piece is None:
            piece = self._known[token_id] = self._compute(token_id)
        return piece

    def _compute(self, token_id: int) -> Piece:
        token = self._backend.id_to_token(token_id) if token_id in TOKEN_IDS else None
        if token is None:
            return _NOTHING
        if self.spelling is Spelling.BYTE_LEVEL:
            spelled = [CHARACTER_TO_BYTE.get(character) for character in token]
            known = [byte for byte in spelled if byte is not None]
            # A token with any other character is an added one, and stands for its text.
            return Piece(bytes(known) if len(known) == len(spelled) else token.encode())
        if self.spelling is Spelling.BYTE_FALLBACK:
            for pattern, content in self._replace:
                token = token.replace(pattern, content)
            byte = BYTE_TOKEN.fullmatch(token)
            return Piece(bytes.fromhex(byte[1]), lone_byte=True) if byte else Piece(token.encode())
        return Piece(self._backend.decode([token_id], skip_special_tokens=False).encode())


def _analyse(state: dict[str, Any]) -> tuple[Spelling, list[tuple[str, str]], int]:
    """Spelling, replacements and stripped leading spaces of a serialised decoder."""
    if state.get("type") == "ByteLevel":
        return Spelling.BYTE_LEVEL, [], 0
    steps = state.get("decoders", []) if state.get("type") == "Sequence" else []
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return Spelling.BYTE_LEVEL, [], 0
    replace = []
    while steps and steps[0]["type"] == "Replace" and "String" in steps[0]["pattern"]:
        replace.append((steps[0]["pattern"]["String"], steps[0]["content"]))
        steps = steps[1:]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteFallback", "Fuse"]:
        return Spelling.BYTE_FALLBACK, replace, 0
    if kinds == ["ByteFallback", "Fuse", "Strip"] and steps[2]["content"] == " " and steps[2]["stop"] == 0:
        return Spelling.BYTE_FALLBACK, replace, steps[2]["start"]
    return Spelling.OTHER, [], 0
