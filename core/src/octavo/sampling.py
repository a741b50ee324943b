"""What a request may ask of sampling: names and defaults of the OpenAI API and of vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TypeGuard

from octavo.errors import RequestError
from octavo.structured_output import StructuredOutput

# What can be served at all; a server bounds its clients further (`octavo.server.transport.limits`).
MAX_N = 1024
MAX_LOGPROBS = 64
MAX_STOP_STRINGS = 256
MAX_STOP_LENGTH = 4096
"""Characters of one stop string."""
MAX_LOGIT_BIAS = 16384
MAX_BAD_WORDS = 256
MAX_BAD_WORD_BYTES = 64 * 1024
"""Of all bad words together, in UTF-8."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real)  # NumPy's scalars too


def _number(
    name: str, value: object, low: float, high: float, *, open_low: bool = False, param: str | None = None
) -> None:
    if not _is_number(value):
        raise RequestError(f"{name} must be a number, not {value!r}", param=param or name)
    if not (low < value if open_low else low <= value) or not value <= high:  # NaN lands here too
        left = "(" if open_low else "["
        raise RequestError(f"{name} must be in {left}{low:g}, {high:g}], not {value}", param=param or name)


def _integer(name: str, value: object, low: int, high: int | None = None) -> None:
    if not isinstance(value, Integral):
        raise RequestError(f"{name} must be an integer, not {value!r}", param=name)
    if int(value) < low or (high is not None and int(value) > high):
        limits = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise RequestError(f"{name} must be {limits}, not {value}", param=name)


def _token_id(name: str, token: object) -> None:
    if not isinstance(token, Integral) or int(token) < 0:
        raise RequestError(f"{name} has {token!r}, which is no token id", param=name)


@dataclass(frozen=True)
class ReasoningMarks:
    """Where reasoning is in an output: between ``begin`` and ``end``; ``inside``: the prompt has begun it."""

    begin: str
    end: str
    inside: bool = False

    def __post_init__(self) -> None:
        if not (self.begin and self.end):
            raise RequestError("reasoning takes a beginning and an end that are not empty", param="reasoning")


@dataclass(frozen=True)
class RequestOptions:
    """What a request asks beside its sampling.

    ``priority`` is its place in the queue under the policy "priority": lower is earlier. Requests share cached prefixes
    only with requests of the same ``cache_salt``.
    """

    priority: int = 0
    cache_salt: str = ""


DEFAULT_OPTIONS = RequestOptions()


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of one request; frozen and validated.

    The distribution of the next token is made in this order: tokens that ``structured``, ``allowed_token_ids`` and
    ``bad_words`` forbid fall out; ``min_tokens`` masks the ids that
    would end the sequence; ``logit_bias`` is added; ``repetition_penalty`` (prompt and output),
    ``frequency_penalty`` and ``presence_penalty`` (output only) act on the logits; then
    ``temperature``, ``min_p``, ``top_k`` (0 and -1: all) and ``top_p``. Temperature 0 is greedy: the smallest id
    wins a tie. ``seed`` makes the request reproducible whatever runs beside it.

    ``logprobs`` asks for that many alternatives beside the chosen token's own (0: the chosen one
    alone); they are of the model's raw distribution, before bias, penalties and temperature.
    ``prompt_logprobs`` asks the same of the prompt's tokens. ``max_tokens`` None means up to the
    context's end.

    ``visible_special_ids`` are special tokens that have text even with ``skip_special_tokens``: what a parser of the
    text looks for. ``structured`` holds the output to a constraint; a choice ends with "stop" when its constraint is
    satisfied and nothing may follow, whatever ``min_tokens`` and ``ignore_eos`` say. ``allowed_token_ids`` are the only
    tokens that are ever drawn: without an end-of-sequence token among them, a choice ends by its length. ``bad_words``
    never occur in the text of the output, whatever tokens would spell them, also inside of longer words; capitals
    count, spaces before a word do not. One that is token ids is forbidden as that sequence of tokens, and so is a
    special token by its name.

    ``min_tokens`` holds off stop strings as well: one that is complete within that many tokens does not end the output.
    Where ``reasoning`` says how the model marks it, stop strings act on the answer alone, unless ``stop_in_reasoning``.

    ``stop`` and ``stop_token_ids`` take any iterable and become tuples; ``stop_strings`` and ``stop_ids`` hold
    what they come to.

    Raises RequestError, whose ``param`` names the field, for a value of the wrong type or out of range.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    structured: StructuredOutput | None = None
    allowed_token_ids: Iterable[int] | None = None
    bad_words: Iterable[str | Sequence[int]] | None = None
    seed: int | None = None
    stop: str | Iterable[str] | None = None
    stop_token_ids: Iterable[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    visible_special_ids: Iterable[int] = ()
    include_stop_str_in_output: bool = False
    reasoning: ReasoningMarks | None = None
    stop_in_reasoning: bool = False
    detokenize: bool = True
    stop_strings: tuple[str, ...] = field(init=False, default=())
    stop_ids: frozenset[int] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        _integer("n", self.n, 1, MAX_N)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _integer("top_k", self.top_k, -1)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        # As float32 divides by it, a smaller one would make logits infinite.
        _number("repetition_penalty", self.repetition_penalty, 0.001, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**63 - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 0)
        _integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), not {self.min_tokens}", param="min_tokens"
            )
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), 0, MAX_LOGPROBS)
        visible = frozenset(self.visible_special_ids)
        for token in visible:
            _token_id("visible_special_ids", token)
        object.__setattr__(self, "visible_special_ids", visible)
        self._check_stops()
        self._check_bias()
        self._check_forbidden()

    def _check_stops(self) -> None:
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        for stop in stops:
            if not isinstance(stop, str):
                raise RequestError(f"stop takes strings, not {stop!r}", param="stop")
        if len(stops) > MAX_STOP_STRINGS:
            raise RequestError(f"stop takes at most {MAX_STOP_STRINGS} strings, not {len(stops)}", param="stop")
        if not all(stops):
            raise RequestError("stop strings must not be empty", param="stop")
        longest = max(map(len, stops), default=0)
        if longest > MAX_STOP_LENGTH:
            raise RequestError(
                f"stop takes strings of at most {MAX_STOP_LENGTH} characters, not {longest}", param="stop"
            )
        if stops and not self.detokenize:
            raise RequestError("stop strings need detokenize=True", param="stop")
        ids = tuple(self.stop_token_ids or ())
        for token in ids:
            _token_id("stop_token_ids", token)
        # An iterator is spent by now: a copy made by dataclasses.replace must find the values again.
        object.__setattr__(self, "stop", None if self.stop is None else stops)
        object.__setattr__(self, "stop_token_ids", None if self.stop_token_ids is None else ids)
        object.__setattr__(self, "stop_strings", stops)
        object.__setattr__(self, "stop_ids", frozenset(ids))

    def _check_bias(self) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias takes at most {MAX_LOGIT_BIAS} entries, not {len(bias)}", param="logit_bias"
            )
        for token, value in bias.items():
            _token_id("logit_bias", token)
            _number(f"logit_bias of token {token}", value, -100.0, 100.0, param="logit_bias")

    def _check_forbidden(self) -> None:
        if self.structured is not None and not isinstance(self.structured, StructuredOutput):
            raise RequestError(f"structured takes a StructuredOutput, not {self.structured!r:.40}", param="structured")
        if self.allowed_token_ids is not None:
            allowed = tuple(self.allowed_token_ids)
            if not allowed:
                raise RequestError(
                    "allowed_token_ids is empty, so nothing could be drawn; leave it out", param="allowed_token_ids"
                )
            for token in allowed:
                _token_id("allowed_token_ids", token)
            object.__setattr__(self, "allowed_token_ids", tuple(int(token) for token in allowed))
        if self.bad_words is not None:
            given = self.bad_words
            words = [] if isinstance(given, str) else [w if isinstance(w, str) else tuple(w) for w in given]
            if isinstance(given, str) or not all(words):
                raise RequestError(f"bad_words takes strings that are not empty, not {given!r:.40}", param="bad_words")
            if sum(isinstance(word, str) for word in words) > MAX_BAD_WORDS:
                raise RequestError(
                    f"bad_words takes at most {MAX_BAD_WORDS} strings, not {len(words)}", param="bad_words"
                )
            size = sum(len(word.encode(errors="replace")) for word in words if isinstance(word, str))
            if size > MAX_BAD_WORD_BYTES:
                raise RequestError(
                    f"bad_words takes at most {MAX_BAD_WORD_BYTES} bytes together, not {size}", param="bad_words"
                )
            for token in (token for word in words if not isinstance(word, str) for token in word):
                _token_id("bad_words", token)
            object.__setattr__(self, "bad_words", tuple(words))

    @property
    def bad_word_ids(self) -> tuple[tuple[int, ...], ...]:
        """Those of ``bad_words`` that are token ids."""
        return tuple(tuple(word) for word in self.bad_words or () if not isinstance(word, str))

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken without drawing."""
        return self.temperature == 0.0
