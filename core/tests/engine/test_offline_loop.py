"""Many requests through one engine: in order, a bounded number at a time, whatever else is asked in between."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine.faults import Faulty
from engine.tiny_engine import TinyEngine, alone, engine, greedy, prompt

from octavo.engine.constraints import NoConstraints
from octavo.engine.offline_loop import OfflineLoop
from octavo.engine.outputs import RequestDelta, RequestState
from octavo.errors import RequestError, RequestFailed
from octavo.sampling import SamplingParams
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.usefixtures("platform_name")

MOST, AHEAD = 6, 10


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


@dataclass
class One:
    """An entry that keeps its tokens."""

    state: RequestState
    tokens: list[int] = field(default_factory=list)

    def add(self, delta: RequestDelta) -> None:
        for choice in delta.outputs:
            self.tokens += choice.token_ids


def _one(tokenizer: Tokenizer, name: str, ids: list[int], tokens: int, n: int = 1, seed: int | None = None) -> One:
    params = SamplingParams(n=n, temperature=0.0, seed=seed, max_tokens=tokens, ignore_eos=True, detokenize=False)
    return One(RequestState(name, tuple(ids), params, tokenizer))


def _many(tokenizer: Tokenizer, count: int, prefix: str = "r") -> Iterator[One]:
    """Lengths such that early ones outlast later ones."""
    for i in range(count):
        yield _one(tokenizer, f"{prefix}{i}", prompt(i, 3 + i % 5), 30 if i % 7 == 0 else 1 + i % 4)


def _waves(tiny: TinyEngine) -> OfflineLoop:
    return OfflineLoop(tiny.core, MOST, NoConstraints())


def test_each_comes_in_its_turn_with_the_tokens_it_gets_alone(tokenizer: Tokenizer) -> None:
    got = list(_waves(engine()).run(_many(tokenizer, 30), ahead=AHEAD))
    assert [one.state.id for one in got] == [f"r{i}" for i in range(30)]
    for i in (0, 7, 12, 29):
        assert got[i].tokens == alone(prompt(i, 3 + i % 5), greedy(30 if i % 7 == 0 else 1 + i % 4))


def test_the_engine_never_holds_more_than_it_may_and_no_more_are_made_than_that(tokenizer: Tokenizer) -> None:
    tiny = engine()
    made = yielded = 0
    most_made, most_in_engine, most_states = 0, 0, 0

    def source() -> Iterator[One]:
        nonlocal made, most_made, most_in_engine
        for one in _many(tokenizer, 300):
            made += 1
            most_made = max(most_made, made - yielded)
            most_in_engine = max(most_in_engine, tiny.scheduler.unfinished + 1)
            yield one

    def states() -> int:
        return sum(type(thing) is RequestState for thing in gc.get_objects())

    before = states()
    for _ in _waves(tiny).run(source(), ahead=AHEAD):
        yielded += 1
        if yielded % 20 == 0:
            most_states = max(most_states, states() - before)
    assert (made, yielded) == (300, 300)
    assert most_in_engine == MOST
    assert most_made <= AHEAD + 1 and 0 < most_states <= AHEAD + 1


def test_without_a_bound_ahead_one_slow_request_holds_back_no_other(tokenizer: Tokenizer) -> None:
    tiny = engine()
    over: list[str] = []
    slow = _one(tokenizer, "slow", prompt(1, 5), 150)
    rest = (_one(tokenizer, f"q{i}", prompt(i, 4), 2) for i in range(100))
    run = _waves(tiny).run(itertools.chain([slow], rest), ended=lambda one: over.append(one.state.id))
    first = next(run)
    assert first is slow and len(over) == 101 and over[-1] == "slow"


def test_calls_may_be_nested(tokenizer: Tokenizer) -> None:
    tiny = engine()
    waves = _waves(tiny)
    inner: list[list[int]] = []
    outer = []
    for one in waves.run(_many(tokenizer, 12), ahead=AHEAD):
        outer.append(one.tokens)
        if len(outer) % 3 == 0:
            inner += [one.tokens for one in waves.run(_many(tokenizer, 5, f"in{len(outer)}-"), ahead=2)]
    assert outer == [one.tokens for one in waves.run(_many(tokenizer, 12, "again"))]
    assert inner == outer[:5] * 4
    assert not tiny.core.has_work


def test_what_the_source_raises_comes_after_all_before_it(tokenizer: Tokenizer) -> None:
    tiny = engine()

    def source() -> Iterator[One]:
        yield from _many(tokenizer, 4)
        raise OSError("the file ended")

    got: list[One] = []
    with pytest.raises(OSError, match="the file ended"):
        got.extend(_waves(tiny).run(source()))
    assert [one.state.id for one in got] == ["r0", "r1", "r2", "r3"]


def test_a_request_the_engine_refuses_is_raised_in_its_turn(tokenizer: Tokenizer) -> None:
    tiny = engine()
    source = [*_many(tokenizer, 3), _one(tokenizer, "long", prompt(1, 500), 3), *_many(tokenizer, 3, "after")]
    got: list[One] = []
    with pytest.raises(RequestError, match="the prompt has 500"):
        got.extend(_waves(tiny).run(source))
    assert [one.state.id for one in got] == ["r0", "r1", "r2"]
    assert not tiny.core.has_work


def test_leaving_early_ends_what_runs(tokenizer: Tokenizer) -> None:
    tiny = engine()
    run = _waves(tiny).run(_many(tokenizer, 50), ahead=AHEAD)
    next(run)
    assert tiny.core.has_work
    run.close()  # type: ignore[attr-defined]
    assert not tiny.core.has_work and tiny.kv.pool.used == 0


def test_a_failed_request_ends_the_call_at_once_and_only_this_call(tokenizer: Tokenizer) -> None:
    tiny = engine()
    waves = _waves(tiny)
    other = waves.run(_many(tokenizer, 3, "other"))
    next(other)
    doomed = _one(tokenizer, "doomed", prompt(77, 5), 20, n=2, seed=666)
    tiny.runner._sampler = Faulty(666, raises=True)
    with pytest.raises(RequestFailed, match="request doomed"):
        list(waves.run([doomed, *_many(tokenizer, 5)]))
    assert [one.state.id for one in other] == ["other1", "other2"]
    assert not tiny.core.has_work
