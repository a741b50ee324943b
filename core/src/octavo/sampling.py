"""What a request may ask of sampling: names and defaults of the OpenAI API and of vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from octavo.errors import RequestError

MAX_N = 128
MAX_LOGPROBS = 64
MAX_STOP_STRINGS = 64
MAX_LOGIT_BIAS = 1024


def _range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    inside = (low < value if open_low else low <= value) and value <= high
    if not inside:  # NaN lands here too
        left = "(" if open_low else "["
        raise RequestError(f"{name} must be in {left}{low:g}, {high:g}], not {value}", param=name)


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of one request; frozen and validated.

    The distribution of the next token is made in this order: ``min_tokens`` masks the ids that
    would end the sequence; ``logit_bias`` is added; ``repetition_penalty`` (prompt and output),
    ``frequency_penalty`` and ``presence_penalty`` (output only) act on the logits; then
    ``temperature``, ``min_p``, ``top_k`` and ``top_p``. Temperature 0 is greedy: the smallest id
    wins a tie. ``seed`` makes the request reproducible whatever runs beside it.

    ``logprobs`` asks for that many alternatives beside the chosen token's own (0: the chosen one
    alone); they are of the model's raw distribution, before bias, penalties and temperature.
    ``prompt_logprobs`` asks the same of the prompt's tokens. ``max_tokens`` None means up to the
    context's end.

    Raises RequestError, whose ``param`` names the field, for a value out of range.
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
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    stop_strings: tuple[str, ...] = field(init=False, default=())
    stop_ids: frozenset[int] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        _range("n", self.n, 1, MAX_N)
        _range("temperature", self.temperature, 0.0, 100.0)
        _range("top_p", self.top_p, 0.0, 1.0, open_low=True)
        if self.top_k < -1:
            raise RequestError(f"top_k must be -1 or 0 (all) or positive, not {self.top_k}", param="top_k")
        _range("min_p", self.min_p, 0.0, 1.0)
        _range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _range("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        if self.seed is not None:
            _range("seed", self.seed, -(2**63), 2**63 - 1)
        if self.max_tokens is not None and self.max_tokens < 0:
            raise RequestError(f"max_tokens must be at least 0, not {self.max_tokens}", param="max_tokens")
        if self.min_tokens < 0 or (self.max_tokens is not None and self.min_tokens > self.max_tokens):
            raise RequestError(
                f"min_tokens must be between 0 and max_tokens ({self.max_tokens}), not {self.min_tokens}",
                param="min_tokens",
            )
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _range(name, value, 0, MAX_LOGPROBS)
        self._check_stops()
        self._check_bias()

    def _check_stops(self) -> None:
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > MAX_STOP_STRINGS:
            raise RequestError(f"stop takes at most {MAX_STOP_STRINGS} strings, not {len(stops)}", param="stop")
        if not all(stops):
            raise RequestError("stop strings must not be empty", param="stop")
        if stops and not self.detokenize:
            raise RequestError("stop strings need detokenize=True", param="stop")
        object.__setattr__(self, "stop_strings", stops)
        object.__setattr__(self, "stop_ids", frozenset(self.stop_token_ids or ()))

    def _check_bias(self) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias takes at most {MAX_LOGIT_BIAS} entries, not {len(bias)}", param="logit_bias"
            )
        for token, value in bias.items():
            if token < 0:
                raise RequestError(f"logit_bias has the token id {token}", param="logit_bias")
            if not -100.0 <= value <= 100.0:
                raise RequestError(
                    f"logit_bias of token {token} must be in [-100, 100], not {value}", param="logit_bias"
                )

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken without drawing."""
        return self.temperature == 0.0
