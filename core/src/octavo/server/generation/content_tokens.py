"""The tokens of an answer's content, for its logprobs.

An answer's tokens are more than its content: markers, reasoning, tool calls, what a stop string has cut off, the token
that ended it. The parsers say where content stands in the answer's text
(`octavo.text.parsing.parts.ContentText.spans`); here the characters of that text are traced to the bytes of the tokens
that made them.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.sampling import SamplingParams
from octavo.server.generation.backend import TextTokenizer
from octavo.step_plan import TokenLogprobs
from octavo.text.parsing.parts import ContentText, Part, Span

_LONGEST_INCOMPLETE = 3  # bytes of a UTF-8 sequence that still wants one


@dataclass(frozen=True)
class ContentToken:
    """A token of the content. ``data`` is what of its bytes is content: all of them, but where content begins or ends
    inside of the token.
    """

    entry: TokenLogprobs
    data: bytes


@dataclass(slots=True)
class _Token:
    entry: TokenLogprobs
    data: bytes
    begin: int
    """Of its bytes among those of all tokens."""
    kept: bytes = b""
    """Those found to be content so far."""

    @property
    def end(self) -> int:
        return self.begin + len(self.data)


class ContentTokens:
    """Finds the content's tokens of one choice. Joined, their bytes are the content."""

    def __init__(self, tokenizer: TextTokenizer, prompt: Sequence[int], params: SamplingParams) -> None:
        visible = frozenset(params.visible_special_ids)
        skip = params.skip_special_tokens
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids - visible if skip else frozenset[int]()
        self._stream = tokenizer.detokenizer(prompt, skip_special_tokens=skip, visible=visible)
        self._tokens: deque[_Token] = deque()
        self._begins: list[int] = []  # of each character of the text among the bytes of all tokens
        self._ends: list[int] = []
        self._text: list[str] = []  # the characters
        self._found = 0  # of them, those up to the end of the words that were found last
        self._size = 0  # bytes of all tokens
        self._pending = self._open_character(prompt)  # bytes whose characters have not come; first some of the prompt

    def _open_character(self, prompt: Sequence[int]) -> bytes:
        """The bytes of a character that the prompt begins and the answer completes."""
        tail = b""
        for token in reversed(prompt):
            tail = (b"" if token in self._hidden else self._tokenizer.token_bytes(token)) + tail
            if len(tail) >= _LONGEST_INCOMPLETE:
                break
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        utf8.decode(tail)
        return utf8.getstate()[0]

    def add(self, tokens: Sequence[int], entries: Sequence[TokenLogprobs], *, last: bool) -> None:
        """Tokens that have come. ``last``: there are no more."""
        for token, entry in zip(tokens, entries, strict=True):
            data = b"" if token in self._hidden else self._tokenizer.token_bytes(token)
            self._tokens.append(_Token(entry, data, self._size))
            self._size += len(data)
            self._pending += data
            self._trace(self._stream.push([token]))
        if last:
            self._trace(self._stream.finish())

    def _trace(self, text: str) -> None:
        """Characters that have come of the pending bytes."""
        if not text:
            return
        self._text += text
        begin, data = self._size - len(self._pending), text.encode()
        skipped = self._pending.find(data)
        if skipped < 0:  # broken UTF-8, whose replacement characters are not what the tokens spell
            size = len(self._pending)
            bounds = [begin + at * size // len(text) for at in range(len(text) + 1)]
            self._begins += bounds[:-1]
            self._ends += bounds[1:]
            self._pending = b""
            return
        at = begin + skipped  # a leading space may be left out of the text
        for character in text:
            self._begins.append(at)
            at += len(character.encode())
            self._ends.append(at)
        self._pending = self._pending[skipped + len(data) :]

    def of(self, parts: Sequence[Part], *, last: bool) -> list[list[ContentToken]]:
        """For each of the parts the content's tokens that are known with it; with the ``last`` part come all others.

        A token comes with the last of its content; where that is seen only from what follows, with that.
        """
        found = [self._words(self._spans(part)) if isinstance(part, ContentText) else self._settled() for part in parts]
        if last:
            rest = self._settled()
            if rest:
                found = [*found[:-1], [*found[-1], *rest]] if found else [rest]
        return found

    def _spans(self, part: ContentText) -> Sequence[Span]:
        """Where words stand; those of a parser that does not say are looked for behind the words before them."""
        spans = part.spans
        if not spans and part.text:
            at = "".join(self._text[self._found :]).find(part.text)
            spans = () if at < 0 else ((self._found + at, self._found + at + len(part.text)),)
        if spans:
            self._found = spans[-1][1]
        return spans

    def _words(self, spans: Iterable[Span]) -> list[ContentToken]:
        done: list[ContentToken] = []
        for begin, end in spans:
            end = min(end, len(self._ends))
            if begin < end:
                done += self._stretch(self._begins[begin], self._ends[end - 1])
        return done

    def _stretch(self, begin: int, end: int) -> Iterable[ContentToken]:
        """The bytes from ``begin`` to ``end`` are content."""
        for token in self._tokens:
            if token.begin >= end:
                break
            token.kept += token.data[max(begin - token.begin, 0) : max(end - token.begin, 0)]
        done = []
        while self._tokens and self._tokens[0].end <= end:
            token = self._tokens.popleft()
            if token.kept:
                done.append(ContentToken(token.entry, token.kept))
        return done

    def _settled(self) -> list[ContentToken]:
        """A token that content ends in, as far as is known: words that were held back may come behind what follows,
        and then the token comes again with its rest.
        """
        if not self._tokens or not self._tokens[0].kept:
            return []
        token = self._tokens[0]
        kept, token.kept = token.kept, b""
        return [ContentToken(token.entry, kept)]
