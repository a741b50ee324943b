"""An engine whose every answer can be worked out by hand.

Tokens 0-255 are single bytes, 256 is <s>, 257 is </s>; 258 and on are the words below. A prompt is encoded
byte by byte. Whatever the prompt, choice j answers with the words of ``engine.script`` in turn, the first of
them ``engine.script[0] + j``; token k of an answer has the logprob -(k + 1) / 4, alternatives follow 1/8 apart.
"""

from __future__ import annotations

import asyncio
import codecs
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.errors import RequestError
from octavo.pooling import PoolingParams, Vector
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.step_plan import TokenLogprobs
from octavo.text.tokenizer.fim import FillInMiddle

BOS, EOS = 256, 257
WORDS = ("Hello", "Howdy", "Hi", ",", " wor", "ld", "!", " caf", "\u2028", "two\nlines", "é", "😀")
FIRST_WORD = 258
HELLO, HOWDY, HI, COMMA, WOR, LD, BANG, CAF, SEPARATOR, LINES, E_ACUTE, SMILE = range(
    FIRST_WORD, FIRST_WORD + len(WORDS)
)
TWIN = FIRST_WORD + len(WORDS)
"""A token of the same text as COMMA."""


class FakeStream:
    """Bytes to text as they come."""

    def __init__(
        self, tokenizer: FakeTokenizer, prompt: Sequence[int], skip_special_tokens: bool, visible: Iterable[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids - frozenset(visible) if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.push(prompt)

    def push(self, ids: Sequence[int]) -> str:
        return self._utf8.decode(b"".join(self._tokenizer.token_bytes(i) for i in ids if i not in self._hidden))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class FakeTokenizer:
    """Bytes and a few words."""

    special_ids = frozenset({BOS, EOS})
    vocab_size = TWIN + 1
    bos_token_id = BOS
    fim: FillInMiddle | None = None
    template: str | None = None
    rendered: Sequence[Mapping[str, Any]] = ()
    """The conversation that was last rendered."""

    @property
    def info(self) -> dict[str, Any]:
        return {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "chat_template": None}

    def chat_template_for(self, *, tools: bool = False) -> str | None:
        return self.template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [BOS] * add_special_tokens + list(text.encode())

    def encode_pair(self, text: str, pair: str | None, *, limit: int | None = None) -> tuple[list[int], list[int]]:
        first, second = self.encode(text), [] if pair is None else [EOS, *pair.encode()]
        ids = [*first, *second][:limit]
        return ids, [0 if i < len(first) else 1 for i in range(len(ids))]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        kept = [i for i in ids if not (skip_special_tokens and i in self.special_ids)]
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def decode_open(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return FakeStream(self, (), skip_special_tokens).push(ids)

    def detokenizer(
        self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True, visible: Iterable[int] = ()
    ) -> FakeStream:
        return FakeStream(self, prompt_ids, skip_special_tokens, visible)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        if token_id == TWIN:
            return b","
        return (*(b"<s>", b"</s>"), *(word.encode() for word in WORDS))[token_id - 256]

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return [f"<{token_id}>" for token_id in ids]

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        self.rendered = messages
        if messages[0]["role"] == "assistant":
            raise RequestError("the template wants a user first", param="messages")
        text = "".join(f"{m['role']}:{m['content']}|" for m in messages)
        text = text[:-1] if continue_final_message else text + "assistant:" * add_generation_prompt
        return "".join(f"{k}={v};" for k, v in kwargs.items()) + text

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> list[int]:
        return self.encode(self.render_chat(messages, **options))


@dataclass(frozen=True)
class FakeChoice:
    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass(frozen=True)
class FakeOutput:
    outputs: tuple[FakeChoice, ...]
    cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    left_engine: float | None = None


@dataclass
class Seen:
    """One call of ``generate``."""

    prompt: list[int]
    params: SamplingParams
    request_id: str
    options: RequestOptions

    @property
    def text(self) -> str:
        return FakeTokenizer().decode(self.prompt)


@dataclass
class Embedded:
    """One call of ``embed``."""

    prompts: list[list[int]]
    params: PoolingParams
    token_types: list[list[int]] | None
    request_id: str
    options: RequestOptions


@dataclass
class FakeEngine:
    """Set the fields, make requests, read ``seen`` and ``ended``."""

    model_names: tuple[str, ...] = ("fake", "org/fake-model")
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    max_model_len: int = 1000
    default_params: Mapping[str, Any] = field(default_factory=dict)
    tasks: frozenset[str] = frozenset({"generate"})
    pairs: bool = False

    script: tuple[int, ...] = (HELLO, COMMA, WOR, LD, BANG)
    pause: float = 0.0
    """Seconds before each token; with 0 other tasks get a turn, as they do before an engine's step."""
    fail_at: int | None = None
    """Raise ``error`` in place of this token."""
    error: Exception = field(default_factory=lambda: RuntimeError("secret /path of the engine"))
    stop_reason: int | str | None = None
    """Why an answer that comes to its end stopped."""
    bad_finish: str | None = None
    """End with this finish reason after the first token."""
    silent: frozenset[int] = frozenset()
    """Positions whose text comes with the next token, as when a character is incomplete."""
    slants: tuple[float, ...] = ()
    """Added to the logprobs of choice 0, 1, …"""
    cached: int = 0
    left_engine: float | None = None
    """When it claims to have let go of each item; None for the truth."""
    dead: Exception | None = None

    seen: list[Seen] = field(default_factory=list)
    embedded: list[Embedded] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Ids of the requests that were cut short."""
    running: int = 0
    made: int = 0
    """Tokens made so far, of all requests."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    closed: int = 0

    def wait_until(self, check: Any, seconds: float = 10) -> None:
        """Wait, in a test, for the server's thread to bring a state about."""
        with self.changed:
            assert self.changed.wait_for(check, seconds), f"still not: {self.seen=} {self.ended=} {self.running=}"

    def _note(self, running: int, ended: str | None = None) -> None:
        with self.changed:
            self.running += running
            if ended:
                self.ended.append(ended)
            self.changed.notify_all()

    async def generate(
        self,
        prompt: Sequence[int],
        sampling_params: SamplingParams,
        *,
        request_id: str,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> AsyncGenerator[FakeOutput, None]:
        self.seen.append(Seen(list(prompt), sampling_params, request_id, options))
        self._note(1)
        finished = False
        try:
            async for item in self._answer(list(prompt), sampling_params):
                finished = item.outputs[-1].finish_reason is not None
                yield item
        finally:
            self._note(-1, None if finished else request_id)

    async def _answer(self, prompt: list[int], params: SamplingParams) -> AsyncGenerator[FakeOutput, None]:
        scored = None
        if params.prompt_logprobs is not None:
            scored = (None, *(self._entry(t, k, params.prompt_logprobs) for k, t in enumerate(prompt[1:])))
        limit = len(self.script) if params.max_tokens is None else params.max_tokens
        if limit == 0:
            yield FakeOutput((FakeChoice(0, "", (), (), "length"),), self.cached, scored)
            return
        script = self.script[:limit]
        reason = "stop" if limit >= len(self.script) else "length"
        held = [""] * params.n
        for k, word in enumerate(script):
            await asyncio.sleep(self.pause)
            self.made += 1
            if k == self.fail_at:
                raise self.error
            last = k == len(script) - 1
            choices = []
            for j in range(params.n):
                token = word + j if k == 0 else word
                held[j] += self.tokenizer.token_bytes(token).decode()
                text, held[j] = ("", held[j]) if k in self.silent else (held[j], "")
                slant = self.slants[j] if self.slants else 0.0
                entries = None if params.logprobs is None else (self._entry(token, k, params.logprobs, slant),)
                finish = self.bad_finish or (reason if last else None)
                stop = self.stop_reason if finish == "stop" else None
                choices.append(FakeChoice(j, text, (token,), entries, finish, stop))
            left = time.monotonic() if self.left_engine is None else self.left_engine
            yield FakeOutput(tuple(choices), self.cached, scored, left)
            scored = None

    @staticmethod
    def _entry(token: int, k: int, top: int, slant: float = 0.0) -> TokenLogprobs:
        first = slant - (k + 1) / 4
        others = [(TWIN if token == COMMA else BANG, first - 0.125), (255, first - 0.25), (254, float("-inf"))]
        return TokenLogprobs(token, first, 1, ((token, first), *others)[:top])

    async def embed(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        request_id: str,
        pooling: PoolingParams,
        token_types: Sequence[Sequence[int]] | None = None,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> list[Vector]:
        """A vector of (length of the prompt, its last token), or a score of a tenth of the length."""
        types = None if token_types is None else [list(t) for t in token_types]
        self.embedded.append(Embedded([list(p) for p in prompts], pooling, types, request_id, options))
        self._note(1)
        finished = False
        try:
            await asyncio.sleep(self.pause)
            if self.fail_at is not None:
                raise self.error
            finished = True
        finally:
            self._note(-1, None if finished else request_id)
        vectors = [[len(p) / 10] if self.pairs else [len(p), p[-1]][: pooling.dimensions] for p in prompts]
        return [np.array(vector, np.float32) for vector in vectors]

    async def health(self) -> None:
        if self.dead:
            raise self.dead

    async def close(self) -> None:
        self.closed += 1
