"""From tokens to text: what a front end keeps of a running request.

The engine counts tokens; strings begin here. A stop string ends a choice before the engine knows, so whoever drives a
`RequestState` aborts the choice in the engine when an output says "stop" that the engine did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.errors import RequestError, RequestFailed
from octavo.sampling import SamplingParams
from octavo.scheduler import TokenEvent
from octavo.step_plan import TokenLogprobs
from octavo.text import AnswerStops, Detokenizer, StopStrings, Tokenizer


def error_of(event: TokenEvent) -> RequestError | RequestFailed | None:
    """What to raise for an event that ended its choice with an error: RequestError where its request is at fault."""
    if event.error is None:
        return None
    if event.refused:
        return RequestError(event.error, param=event.param, code="invalid_value")
    return RequestFailed(event.error)


@dataclass(slots=True)
class ChoiceDelta:
    """What one of a request's n sequences gained. A value: never changed after it was made.

    ``text`` may lag behind ``token_ids`` while a character is incomplete.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None


@dataclass(slots=True)
class RequestDelta:
    """One item of a request's stream, a value too. ``finished``: every choice has its finish_reason."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[ChoiceDelta, ...]
    cached_tokens: int
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None
    finished: bool
    left_engine: float | None = None
    """When the engine let go of these tokens (`time.monotonic`), where the driver tells."""


@dataclass
class _Choice:
    detokenizer: Detokenizer | None
    stops: StopStrings | AnswerStops
    generated: int = 0
    """Tokens so far."""
    finished: bool = False


@dataclass
class RequestState:
    """The text side of one request: feed it the engine's events, take the deltas."""

    id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    tokenizer: Tokenizer
    _choices: dict[int, _Choice] = field(init=False, default_factory=dict)
    _open: int = field(init=False)
    _stops: StopStrings = field(init=False)

    def __post_init__(self) -> None:
        self._open = self.params.n
        self._stops = StopStrings(self.params.stop_strings, include=self.params.include_stop_str_in_output)

    def update(self, event: TokenEvent) -> RequestDelta | None:
        """The delta of one event; ``None`` for a choice that a stop string has ended already."""
        choice = self._choices.get(event.index) or self._begin(event.index)
        if choice.finished:
            return None
        delta = self._advance(choice, event)
        if delta.finish_reason is not None:
            choice.finished = True
            choice.detokenizer = None
            self._open -= 1
        scores = None if event.prompt_logprobs is None else (None, *event.prompt_logprobs)
        return RequestDelta(
            self.id, self.prompt_token_ids, (delta,), event.cached_tokens, scores, self._open == 0, event.left_engine
        )

    @staticmethod
    def stopped_by_text(delta: RequestDelta, event: TokenEvent) -> bool:
        """Whether a stop string ended the choice, so that the engine must be told."""
        return event.finish_reason is None and delta.outputs[0].finish_reason is not None

    def _begin(self, index: int) -> _Choice:
        params = self.params
        detokenizer = None
        if params.detokenize:
            detokenizer = Detokenizer(
                self.tokenizer,
                self.prompt_token_ids,
                skip_special_tokens=params.skip_special_tokens,
                visible=params.visible_special_ids,
            )
        stops: StopStrings | AnswerStops = self._stops.again()
        if params.reasoning is not None and params.stop_strings and not params.stop_in_reasoning:
            marks = params.reasoning
            stops = AnswerStops(self._stops.again(), (marks.begin, marks.end), inside=marks.inside)
        choice = self._choices[index] = _Choice(detokenizer, stops)
        return choice

    def _advance(self, choice: _Choice, event: TokenEvent) -> ChoiceDelta:
        text, stop, reason = "", None, event.finish_reason
        choice.generated += len(event.token_ids)
        if choice.detokenizer is not None:
            text, stop = choice.stops.push(choice.detokenizer.push(self._visible(event)), early=self._early(choice))
            if stop is None and reason is not None:
                text, stop = self._flush(choice, text)
        return ChoiceDelta(
            event.index,
            text,
            event.token_ids,
            event.logprobs,
            "stop" if stop is not None else reason,
            stop if stop is not None else event.stop_reason,
            event.error,
        )

    def _flush(self, choice: _Choice, text: str) -> tuple[str, str | None]:
        """All that was held back, for a choice the engine has ended; it may still hold a stop string."""
        assert choice.detokenizer is not None
        more, stop = choice.stops.push(choice.detokenizer.finish(), early=self._early(choice), last=True)
        return text + more, stop

    def _early(self, choice: _Choice) -> bool:
        """Whether no stop string may end the choice yet. As in vLLM, one counts that a later token completes."""
        return choice.generated <= self.params.min_tokens

    def _visible(self, event: TokenEvent) -> Sequence[int]:
        """The tokens that become text: the one that ended the choice does not, unless it was asked to."""
        if event.finish_reason == "stop" and not event.complete and not self.params.include_stop_str_in_output:
            return event.token_ids[:-1]
        return event.token_ids
