"""Outputs held to a form, by the engine: whatever else happens, the tokens are those that the constraint lets come.

The form here can be worked out by hand: the k-th token of an output is k modulo `PERIOD`, plus any multiple of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from engine.tiny_engine import EOS, VOCAB, TinyEngine, block, engine, prompt

from octavo.errors import RequestError
from octavo.platform.step import Words
from octavo.runner.masks import pack
from octavo.sampling import SamplingParams
from octavo.structured_output import StructuredOutput

pytestmark = pytest.mark.usefixtures("platform_name")

PERIOD = 7
FORM = StructuredOutput(regex="what it is does not matter to the engine")


@dataclass
class Counting:
    """Tokens 1 + (k modulo `PERIOD`), plus multiples; may end from ``least`` on, and is complete at ``most``."""

    least: int = 0
    most: int = 10**9
    accepted: list[int] = field(default_factory=list)
    ends: frozenset[int] = frozenset({EOS})
    stuck_at: int | None = None

    def allowed(self, position: int) -> set[int]:
        some = {t for t in range(1, VOCAB) if (t - 1) % PERIOD == position % PERIOD}
        return some | (set(self.ends) if position >= self.least else set())

    def mask(self, out: Words) -> str | None:
        out[:] = pack(self.allowed(len(self.accepted)), VOCAB)
        return "it is stuck" if len(self.accepted) == self.stuck_at else None

    def accept(self, token: int) -> bool:
        assert token in self.allowed(len(self.accepted)), "a token that the mask did not have"
        self.accepted.append(token)
        return token in self.ends or len(self.accepted) == self.most

    def fork(self) -> Counting:
        return Counting(self.least, self.most, list(self.accepted), self.ends, self.stuck_at)


def ask(tiny: TinyEngine, name: str, constraint: Counting | None, ids: list[int] | None = None, **params: Any) -> None:
    form = None if constraint is None else FORM
    asked = SamplingParams(**{"max_tokens": 20, "structured": form, "seed": 5, **params})
    tiny.core.add(name, ids or prompt(1, 9), asked, constraint=constraint)


def in_form(tokens: list[int]) -> bool:
    return all((t - 1) % PERIOD == k % PERIOD for k, t in enumerate(tokens) if t != EOS)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_every_token_is_one_that_the_mask_has(temperature: float) -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=100), temperature=temperature)
    ask(tiny, "free", None, temperature=temperature, ignore_eos=True)
    tiny.finish()
    assert in_form(tiny.tokens("r")) and len(tiny.tokens("r")) == 20
    assert not in_form(tiny.tokens("free")), "a mask is of its own row"
    assert tiny.ended("r").finish_reason == "length"


def test_a_complete_form_ends_with_its_last_token() -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=100, most=6))
    tiny.finish()
    ended = tiny.ended("r")
    assert (ended.finish_reason, ended.stop_reason, ended.complete) == ("stop", None, True)
    assert len(tiny.tokens("r")) == 6


def test_a_form_that_is_complete_at_max_tokens_is_not_cut() -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=100, most=6), max_tokens=6)
    tiny.finish()
    assert tiny.ended("r").finish_reason == "stop"


def test_the_end_comes_only_where_the_form_lets_it() -> None:
    """The bias makes EOS the best token always."""
    tiny = engine()
    ask(tiny, "r", Counting(least=5), logit_bias={EOS: 100.0}, temperature=0.0)
    tiny.finish()
    assert len(tiny.tokens("r")) == 6 and tiny.tokens("r")[-1] == EOS
    ended = tiny.ended("r")
    assert (ended.finish_reason, ended.complete) == ("stop", False)


@pytest.mark.parametrize("asked", [{"min_tokens": 12}, {"ignore_eos": True}], ids=["min_tokens", "ignore_eos"])
def test_what_keeps_a_sequence_going_does_so_within_the_form(asked: dict[str, Any]) -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=5), logit_bias={EOS: 100.0}, temperature=0.0, **asked)
    ask(tiny, "done", Counting(least=100, most=4), **asked)
    tiny.finish()
    assert in_form(tiny.tokens("r"))
    if "min_tokens" in asked:
        assert tiny.tokens("r")[-1] == EOS and len(tiny.tokens("r")) == 13
    else:
        assert EOS not in tiny.tokens("r") and tiny.ended("r").finish_reason == "length"
    assert tiny.ended("done").finish_reason == "stop" and len(tiny.tokens("done")) == 4


@dataclass
class Ended(Counting):
    """Nothing but the end may come."""

    def allowed(self, position: int) -> set[int]:
        return {EOS}

    def fork(self) -> Ended:
        return self


@pytest.mark.parametrize("asked", [{"min_tokens": 12}, {"ignore_eos": True}], ids=["min_tokens", "ignore_eos"])
def test_where_only_the_end_may_come_it_comes(asked: dict[str, Any]) -> None:
    tiny = engine()
    ask(tiny, "r", Ended(), **asked)
    tiny.finish()
    assert (tiny.tokens("r"), tiny.ended("r").finish_reason, tiny.ended("r").complete) == ([EOS], "stop", False)


def test_choices_fork_from_one_state_and_go_their_own_ways() -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=8), n=4, temperature=2.0)
    tiny.finish()
    tokens = [tiny.tokens("r", i) for i in range(4)]
    assert all(map(in_form, tokens)) and len({tuple(t) for t in tokens}) == 4
    for i in range(4):
        alone = engine()
        ask(alone, "r", Counting(least=8), n=4, temperature=2.0)
        alone.finish()
        assert alone.tokens("r", i) == tokens[i]


def test_preemption_and_recomputation_change_nothing() -> None:
    def run(blocks: int) -> tuple[list[list[int]], int]:
        tiny = engine(blocks=blocks, prefix_caching=False)
        for i in range(4):
            ask(
                tiny, f"r{i}", Counting(least=100), prompt(i, 3 * block() // 2), temperature=1.0, max_tokens=2 * block()
            )
        tiny.finish()
        return [tiny.tokens(f"r{i}") for i in range(4)], tiny.core.metrics().preemptions

    roomy, none = run(100)
    tight, some = run(12)
    assert (none, roomy) == (0, tight) and some > 0
    assert all(map(in_form, roomy))


def test_a_prefix_hit_begins_at_the_beginning_of_the_form() -> None:
    tiny = engine()
    ids = prompt(3, 3 * block() + 1)
    ask(tiny, "first", Counting(least=100), ids)
    tiny.finish()
    ask(tiny, "again", Counting(least=100), ids)
    tiny.finish()
    assert tiny.tokens("again") == tiny.tokens("first")
    assert tiny.ended("again").cached_tokens > 0


def test_logprobs_are_of_all_tokens() -> None:
    """The raw distribution: the best alternatives are mostly forbidden."""
    tiny = engine()
    ask(tiny, "r", Counting(least=100), logprobs=5, temperature=0.0)
    tiny.finish()
    entries = [entry for event in tiny.events for entry in event.logprobs or ()]
    assert len(entries) == 20
    top = [token for entry in entries for token, _ in entry.top]
    assert any((token - 1) % PERIOD != k // 5 % PERIOD for k, token in enumerate(top))
    assert all(entry.rank == 1 or entry.logprob <= entry.top[0][1] for entry in entries)


def test_a_form_that_lets_nothing_come_ends_its_request_alone() -> None:
    tiny = engine()
    ask(tiny, "stuck", Counting(least=100, stuck_at=3))
    ask(tiny, "fine", Counting(least=100))
    tiny.finish()
    ended = tiny.ended("stuck")
    assert (ended.finish_reason, ended.error) == ("error", "it is stuck")
    assert len(tiny.tokens("stuck")) == 3
    assert tiny.ended("fine").finish_reason == "length"


def test_a_choice_that_is_aborted_leaves_the_others_in_form() -> None:
    tiny = engine()
    ask(tiny, "r", Counting(least=100), n=3, temperature=2.0)
    while len(tiny.tokens("r")) < 4:
        tiny.step()
    tiny.core.abort("r", 1)
    tiny.finish()
    assert in_form(tiny.tokens("r", 0)) and in_form(tiny.tokens("r", 2)) and len(tiny.tokens("r", 2)) == 20


def test_allowed_tokens_are_the_only_ones() -> None:
    tiny = engine()
    ask(tiny, "r", None, allowed_token_ids=[5, 64, 96], temperature=2.0)
    ask(tiny, "both", Counting(least=100), allowed_token_ids=range(1, 40), temperature=2.0)
    ask(tiny, "none", Counting(least=100), allowed_token_ids=[1])
    tiny.finish()
    assert set(tiny.tokens("r")) <= {5, 64, 96} and len(tiny.tokens("r")) == 20
    assert in_form(tiny.tokens("both")) and max(tiny.tokens("both")) < 40
    ended = tiny.ended("none")
    assert ended.finish_reason == "error" and "allowed_token_ids has none" in str(ended.error)


def test_bad_words_are_not_written() -> None:
    free = engine()
    ask(free, "r", None, temperature=0.0, ignore_eos=True)
    free.finish()
    tokens = free.tokens("r")
    held = engine()
    bad = [(tokens[0],), tuple(tokens[3:6])]
    ask(held, "one", None, temperature=0.0, ignore_eos=True, bad_words=bad[:1])
    ask(held, "three", None, temperature=0.0, ignore_eos=True, bad_words=bad[1:])
    held.finish()
    assert tokens[0] not in held.tokens("one")
    made = held.tokens("three")
    assert made[:5] == tokens[:5] and made[5] != tokens[5], "a word's last token is forbidden after the others alone"
    assert not any(tuple(made[i : i + 3]) == bad[1] for i in range(len(made)))


def test_bad_words_begin_in_the_output() -> None:
    """The prompt's last token and the first of the output are no word."""
    free = engine()
    ids = prompt(1, 9)
    ask(free, "r", None, ids, temperature=0.0)
    free.finish()
    held = engine()
    ask(held, "r", None, ids, temperature=0.0, bad_words=[(ids[-1], free.tokens("r")[0])])
    held.finish()
    assert held.tokens("r")[0] == free.tokens("r")[0]


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    tiny = engine()
    for field_, value in (("allowed_token_ids", [VOCAB]), ("bad_words", [(3, VOCAB)])):
        with pytest.raises(RequestError, match=f"{field_} has token id {VOCAB}") as caught:
            ask(tiny, field_, None, **{field_: value})
        assert caught.value.param == field_
    assert np.array_equal(pack([VOCAB], VOCAB), pack([], VOCAB))


@pytest.mark.parametrize(
    ("params", "constraint", "param", "reason"),
    [
        ({}, Counting(least=100, stuck_at=2), "structured", "it is stuck"),
        ({"allowed_token_ids": [1]}, Counting(least=100), "allowed_token_ids", "allowed_token_ids has none"),
        ({"allowed_token_ids": [5], "bad_words": [(5,)]}, None, "bad_words", "bad_words forbids all"),
        ({"allowed_token_ids": [5], "bad_words": [(5, 5)]}, None, "bad_words", "bad_words forbids all"),
        ({"allowed_token_ids": [EOS], "min_tokens": 2}, None, "min_tokens", "min_tokens forbids all"),
        ({"bad_words": [(t,) for t in range(VOCAB)]}, None, "bad_words", "bad_words forbids all"),
        (
            {"bad_words": [(t,) for t in range(1, VOCAB, PERIOD)]},
            Counting(least=100),
            "bad_words",
            "bad_words forbids all",
        ),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
def test_a_request_that_lets_nothing_come_is_told_that_it_is_at_fault(
    params: dict[str, Any], constraint: Counting | None, param: str, reason: str, n: int
) -> None:
    tiny = engine()
    ask(tiny, "stuck", None if constraint is None else constraint.fork(), n=n, temperature=2.0, **params)
    ask(tiny, "fine", None)
    tiny.finish()
    for index in range(n):
        (ended,) = (e for e in tiny.events if (e.request_id, e.index) == ("stuck", index) and e.finish_reason)
        assert (ended.finish_reason, ended.refused, ended.param) == ("error", True, param)
        assert reason in str(ended.error)
    assert tiny.ended("fine").finish_reason == "length" and not tiny.ended("fine").refused
