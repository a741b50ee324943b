"""What a request may ask of sampling: names and defaults of the OpenAI API and of vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TypeGuard

from octavo.errors import RequestError

MAX_N = 128
MAX_LOGPROBS = 64
MAX_STOP_STRINGS = 64
MAX_LOGIT_BIAS = 1024


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
class SamplingParams:
    """Sampling parameters of one request; frozen and validated.

    The distribution of the next token is made in this order: ``min_tokens`` masks the ids that
    would end the sequence; ``logit_bias`` is added; ``repetition_penalty`` (prompt and output),
    ``frequency_penalty`` and ``presence_penalty`` (output only) act on the logits; then
    ``temperature``, ``min_p``, ``top_k`` (0 and -1: all) and ``top_p``. Temperature 0 is greedy: the smallest id
    wins a tie. ``seed`` makes the request reproducible whatever runs beside it.

    ``logprobs`` asks for that many alternatives beside the chosen token's own (0: the chosen one
    alone); they are of the model's raw distribution, before bias, penalties and temperature.
    ``prompt_logprobs`` asks the same of the prompt's tokens. ``max_tokens`` None means up to the
    context's end.

    ``visible_special_ids`` are special tokens that have text even with ``skip_special_tokens``: what a parser of the
    text looks for.

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

    def _check_stops(self) -> None:
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        for stop in stops:
            if not isinstance(stop, str):
                raise RequestError(f"stop takes strings, not {stop!r}", param="stop")
        if len(stops) > MAX_STOP_STRINGS:
            raise RequestError(f"stop takes at most {MAX_STOP_STRINGS} strings, not {len(stops)}", param="stop")
        if not all(stops):
            raise RequestError("stop strings must not be empty", param="stop")
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

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken without drawing."""
        return self.temperature == 0.0
