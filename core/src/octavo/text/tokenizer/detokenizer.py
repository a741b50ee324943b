"""Tokens in, text out, a step at a time, in constant time per token.

Joined together, what `push` and `finish` return is what decoding prompt and output at once gives for the output. Text
that has been returned is never taken back, and a character is returned only when all of its bytes are there.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from octavo.text.tokenizer.pieces import Pieces, Spelling

if TYPE_CHECKING:
    from octavo.text.tokenizer.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"

_LONGEST_INCOMPLETE = 3  # bytes of a UTF-8 sequence that still wants one
# Byte-fallback decoders judge a run of byte tokens as a whole, so that a run is held until it ends. 64 bytes are 16
# emoji: no run of that length is left waiting, see _ByteFallback.
_LONGEST_RUN = 64
# For decoders that only answer as a whole: tokens of context that the next token's text may depend on, and how many
# tokens a character may be spread over before its bytes are taken for invalid.
_CONTEXT = 8
_LONGEST_SPREAD = 8


class Detokenizer:
    """The text of one sequence.

    `prompt_ids` is what the output continues: it decides on a leading space, and a character whose first bytes end the
    prompt is completed by the output (and returned whole). With `skip_special_tokens` special tokens contribute
    nothing, as in `Tokenizer.decode`, but for those that are `visible`. Ids outside the vocabulary contribute nothing.

    The joined output equals ``tokenizer.decode(prompt_ids + output_ids)`` less ``tokenizer.decode(prompt_ids)``, with
    two provisos: a byte-fallback decoder's run of more than 64 byte tokens is decoded as it comes (a bad byte in it is
    one U+FFFD, where `decode` turns the entire run into U+FFFD), and for decoders of kind OTHER
    (`octavo.text.tokenizer.pieces`) the text of a token may depend on the 8 tokens before it at most.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        visible: Iterable[int] = (),
    ) -> None:
        self._skipped = tokenizer.special_ids.difference(visible) if skip_special_tokens else frozenset[int]()
        prompt = _Kept(prompt_ids, self._skipped)
        self._stream: _Stream
        match tokenizer.pieces.spelling:
            case Spelling.BYTE_LEVEL:
                self._stream = _ByteLevel(tokenizer.pieces, prompt)
            case Spelling.BYTE_FALLBACK:
                self._stream = _ByteFallback(tokenizer.pieces, prompt)
            case Spelling.OTHER:
                self._stream = _Windowed(tokenizer, prompt)

    def push(self, ids: Sequence[int]) -> str:
        """The text that these tokens settle; empty while a character is incomplete."""
        return self._stream.push([token_id for token_id in ids if token_id not in self._skipped])

    def finish(self) -> str:
        """The rest, when no more tokens come: U+FFFD for a sequence that stayed incomplete."""
        return self._stream.finish()


def open_text(tokenizer: Tokenizer, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
    """The text of ids less a character that they begin and do not complete: it is in the text of a `Detokenizer` that
    goes on from them. For decoders of kind OTHER that is all of the text.
    """
    skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
    kept = _Kept(ids, skipped)
    pieces = tokenizer.pieces
    if pieces.spelling is Spelling.BYTE_LEVEL:
        open_character = _ByteLevel(pieces, kept).pending
        text = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text.removesuffix(REPLACEMENT) if open_character else text
    if pieces.spelling is Spelling.BYTE_FALLBACK:
        wanted = len(_ByteFallback(pieces, kept).pending)
        cut = len(ids)
        while wanted:
            cut -= 1
            wanted -= ids[cut] not in skipped and pieces[ids[cut]].lone_byte
        ids = ids[:cut]
    return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


class _Kept:
    """The ids of a prompt that contribute text, from either end; a long prompt is not walked unless it has to be."""

    def __init__(self, ids: Sequence[int], skipped: frozenset[int]) -> None:
        self._ids = ids
        self._skipped = skipped

    def __iter__(self) -> Iterator[int]:
        return (token_id for token_id in self._ids if token_id not in self._skipped)

    def __reversed__(self) -> Iterator[int]:
        return (token_id for token_id in reversed(self._ids) if token_id not in self._skipped)


class _Stream(Protocol):
    """One way to decode; the ids are those that contribute text."""

    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class _ByteLevel:
    """Tokens are bytes, and all bytes together are UTF-8: exactly what an incremental UTF-8 decoder is for."""

    def __init__(self, pieces: Pieces, prompt: _Kept) -> None:
        self._pieces = pieces
        self._utf8 = _utf8_decoder()
        tail = b""
        for token_id in reversed(prompt):
            tail = pieces[token_id].data + tail
            if len(tail) >= _LONGEST_INCOMPLETE:
                break
        self._utf8.decode(tail)  # leaves the incomplete end of the prompt pending; its text is the prompt's

    @property
    def pending(self) -> bytes:
        """The bytes of a character that is not complete."""
        return self._utf8.getstate()[0]

    def push(self, ids: Sequence[int]) -> str:
        pieces = self._pieces
        return self._utf8.decode(b"".join([pieces[token_id].data for token_id in ids]))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class _ByteFallback:
    """Tokens are text or lone bytes; a run of lone bytes is valid UTF-8 as a whole, or all of it is U+FFFD.

    So a run is held until a text token ends it. A run that reaches the limit is decoded as it goes from then on: its
    valid characters appear at once, a bad byte costs itself alone.
    """

    def __init__(self, pieces: Pieces, prompt: _Kept) -> None:
        self._pieces = pieces
        self._run = bytearray()
        self._long_run: codecs.IncrementalDecoder | None = None
        self._strip = pieces.strip  # leading spaces that the sequence still has to lose
        if self._strip:
            for token_id in prompt:
                self._stripped(pieces[token_id].data.decode(errors="replace"))
                if not self._strip:
                    break
        self._run += self._open_character(prompt)

    @property
    def pending(self) -> bytes:
        """The bytes of the run that has not ended; before the first push those of an open character."""
        return bytes(self._run)

    def push(self, ids: Sequence[int]) -> str:
        texts = []
        for token_id in ids:
            piece = self._pieces[token_id]
            if piece.lone_byte:
                texts.append(self._add_byte(piece.data))
            elif not piece.absent:
                if self._run or self._long_run:
                    texts.append(self._end_run())
                texts.append(piece.data.decode())
        return self._stripped("".join(texts))

    def finish(self) -> str:
        return self._stripped(self._end_run())

    def _open_character(self, prompt: _Kept) -> bytes:
        """The bytes of a character that the prompt begins and does not complete."""
        tail = b""
        for token_id in reversed(prompt):
            piece = self._pieces[token_id]
            if piece.absent:
                continue
            if not piece.lone_byte or len(tail) == _LONGEST_INCOMPLETE:
                break
            tail = piece.data + tail
        utf8 = _utf8_decoder()
        utf8.decode(tail)
        return utf8.getstate()[0]

    def _add_byte(self, byte: bytes) -> str:
        if self._long_run:
            return self._long_run.decode(byte)
        self._run += byte
        if len(self._run) < _LONGEST_RUN:
            return ""
        self._long_run = _utf8_decoder()
        text = self._long_run.decode(bytes(self._run))
        self._run.clear()
        return text

    def _end_run(self) -> str:
        if self._long_run:
            text = self._long_run.decode(b"", final=True)
            self._long_run = None
            return text
        try:
            text = self._run.decode()
        except UnicodeDecodeError:
            text = REPLACEMENT * len(self._run)
        self._run.clear()
        return text

    def _stripped(self, text: str) -> str:
        """`text` less the leading spaces that the sequence still has to lose."""
        if not self._strip or not text:
            return text
        spaces = len(text) - len(text.lstrip(" "))
        lost = min(spaces, self._strip)
        self._strip = self._strip - lost if spaces == len(text) else 0
        return text[lost:]


class _Windowed:
    """Any other decoder: decodes a short window twice, without and with the new tokens, and returns the difference."""

    def __init__(self, tokenizer: Tokenizer, prompt: _Kept) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        for token_id in reversed(prompt):
            self._window.insert(0, token_id)
            if len(self._window) == _CONTEXT:
                break
        self._returned = self._decode()
        self._pending = 0

    def push(self, ids: Sequence[int]) -> str:
        return "".join([self._add(token_id) for token_id in ids])

    def finish(self) -> str:
        return self._settle(self._decode())

    def _add(self, token_id: int) -> str:
        self._window.append(token_id)
        self._pending += 1
        text = self._decode()
        if text.endswith(REPLACEMENT) and self._pending < _LONGEST_SPREAD:
            return ""
        return self._settle(text)

    def _settle(self, text: str) -> str:
        new = text[len(self._returned) :]
        self._window = self._window[-_CONTEXT:]
        self._returned = self._decode()
        self._pending = 0
        return new

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=False)


def _utf8_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
