"""Logprobs of the engine in the shapes of the two generating APIs."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from octavo.server.generation.backend import TextStream, TextTokenizer
from octavo.server.generation.content_tokens import ContentToken
from octavo.server.generation.replies import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from octavo.step_plan import TokenLogprobs

FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


def floored(logprob: float) -> float:
    """A logprob that JSON can carry; not-a-number counts as impossible."""
    return max(FLOOR, logprob)  # in this order: a comparison with not-a-number is false, and keeps the first


class TokenNames:
    r"""How tokens are written in logprobs; one that is no whole character is ``bytes:\xe2\x80``, as OpenAI's are."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._seen: dict[int, tuple[str, bytes]] = {}  # at most one entry per id of the vocabulary

    def of(self, token: int) -> tuple[str, bytes]:
        """Name and bytes of a token."""
        found = self._seen.get(token)
        if found is None:
            raw = self._tokenizer.token_bytes(token)
            found = self._seen[token] = (_name(raw), raw)
        return found

    @property
    def special_ids(self) -> AbstractSet[int]:
        """Tokens that the text may leave out."""
        return self._tokenizer.special_ids

    def stream(self, prompt: Sequence[int], *, skip_special: bool) -> TextStream:
        """The text of tokens that go on from a prompt."""
        return self._tokenizer.detokenizer(prompt, skip_special_tokens=skip_special)


def _name(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _as_id(token: int) -> str:
    return f"token_id:{token}"


def chat_logprobs(tokens: Iterable[ContentToken], names: TokenNames, *, as_ids: bool = False) -> ChatLogprobs:
    """The chat API's shape: per token its logprob and the alternatives in falling order.

    Joined, the bytes are the content's: a token that is content in part is written with that part.
    """

    def name(token: int) -> tuple[str, list[int]]:
        text, raw = names.of(token)
        return (_as_id(token) if as_ids else text), list(raw)

    def top(token: int, logprob: float) -> TopLogprob:
        text, raw = name(token)
        return TopLogprob(text, floored(logprob), raw)

    content = []
    for token in tokens:
        entry = token.entry
        text = _as_id(entry.token_id) if as_ids else _name(token.data)
        content.append(TokenLogprob(text, floored(entry.logprob), list(token.data), [top(*pair) for pair in entry.top]))
    return ChatLogprobs(content)


def prompt_logprobs(entries: Sequence[TokenLogprobs | None], names: TokenNames, top: int) -> PromptLogprobs:
    """vLLM's shape for the tokens of a prompt: each with its own entry and ``top`` alternatives, the best first."""

    def at(entry: TokenLogprobs) -> dict[str, PromptLogprob]:
        ranked = [(token, logprob, rank) for rank, (token, logprob) in enumerate(entry.top[:top], 1)]
        if all(token != entry.token_id for token, _, _ in ranked):
            ranked.append((entry.token_id, entry.logprob, entry.rank))
        return {
            str(token): PromptLogprob(floored(logprob), rank, names.of(token)[0]) for token, logprob, rank in ranked
        }

    return [None if entry is None else at(entry) for entry in entries]


class _Offsets:
    """Where tokens begin in the text that they become, in characters.

    The text is the detokenizer's, which knows of spaces that are left out and of runs of bytes; what it holds back is
    counted by its own bytes.
    """

    def __init__(self, names: TokenNames, prompt: Sequence[int], *, skip_special: bool) -> None:
        self._names = names
        self._hidden = names.special_ids if skip_special else frozenset[int]()
        self._stream = names.stream(prompt, skip_special=skip_special)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._utf8.decode(b"".join(self._bytes(token) for token in prompt[-8:]))  # leaves an open character
        self._settled = 0
        self._held = 0
        """Whole characters among the bytes whose text has not come."""

    def of(self, token: int) -> int:
        """Where the next token begins; inside of a character it is where that begins."""
        at, raw = self._settled + self._held, self._bytes(token)
        text, more = self._stream.push([token]), len(self._utf8.decode(raw))
        if not text:
            if at or raw.strip(b" "):  # else it is a space that the text does without
                self._held += more
            return at
        self._settled += len(text)
        self._held = 0
        own = raw.decode(errors="replace")
        # Of broken UTF-8 before it there may be more characters than were counted.
        return self._settled - len(own) if own and text.endswith(own) else at

    def _bytes(self, token: int) -> bytes:
        return b"" if token in self._hidden else self._names.of(token)[1]


class CompletionLogprobsWriter:
    """The completions API's shape for one choice, piece by piece, with running text offsets."""

    def __init__(
        self, names: TokenNames, top: int, prompt: Sequence[int], *, as_ids: bool = False, skip_special: bool = True
    ) -> None:
        """``top``: alternatives at most per token; the entries may hold more. ``prompt``: what the tokens go on from,
        empty where it is echoed.
        """
        self._names = names
        self._most = top
        self._as_ids = as_ids
        self._offsets = _Offsets(names, prompt, skip_special=skip_special)

    def write(self, tokens: Sequence[int], entries: Sequence[TokenLogprobs | None]) -> CompletionLogprobs:
        """The next tokens of the choice, with an entry for each; None where the token has no logprob."""
        out = CompletionLogprobs([], [], [], [])
        for token, entry in zip(tokens, entries, strict=True):
            out.tokens.append(_as_id(token) if self._as_ids else self._names.of(token)[0])
            out.text_offset.append(self._offsets.of(token))
            out.token_logprobs.append(None if entry is None else floored(entry.logprob))
            out.top_logprobs.append(None if entry is None else self._top(entry))
        return out

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The alternatives and the chosen token. Its value is the very float of ``token_logprobs``, and the largest
        value is the most probable token's: a second token of the same name goes under its id, not over the first.
        """
        found = {token: logprob for token, logprob in entry.top[: self._most] if token != entry.token_id}
        found[entry.token_id] = entry.logprob
        top: dict[str, float] = {}
        for token, logprob in sorted(found.items(), key=lambda pair: -floored(pair[1])):
            name = _as_id(token) if self._as_ids else self._names.of(token)[0]
            top[_as_id(token) if name in top else name] = floored(logprob)
        return top
