"""The same request gives the same tokens, whatever the engine does around it."""

from __future__ import annotations

import pytest
from engine.tiny_engine import BLOCK, alone, block, engine, greedy, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("platform_name")

WINDOWS = [(None, None), (6, None, 6, 6), (5, 5)]
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=7, max_tokens=12, ignore_eos=True)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("params", [greedy(), SAMPLED], ids=["greedy", "sampled"])
def test_tokens_do_not_depend_on_the_batch(windows: tuple[int | None, ...], params: SamplingParams) -> None:
    expected = alone(prompt(1, 21), params, windows)
    together = engine(windows=windows)
    for other in range(31):
        together.core.add(f"other{other}", prompt(100 + other, 3 + other), greedy(8))
    together.core.add("r", prompt(1, 21), params)
    together.finish()
    assert together.tokens("r") == expected


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("budget", [1, 3, 16, 512])
def test_tokens_do_not_depend_on_the_chunk_size(windows: tuple[int | None, ...], budget: int) -> None:
    expected = alone(prompt(2, 50), greedy(), windows)
    chunked = engine(windows=windows, budget=budget)
    chunked.core.add("r", prompt(2, 50), greedy())
    chunked.finish()
    assert chunked.tokens("r") == expected


@pytest.mark.parametrize("windows", WINDOWS)
def test_tokens_do_not_depend_on_a_prefix_hit(windows: tuple[int | None, ...]) -> None:
    length = max(30, 2 * block() + 2)
    expected = alone(prompt(3, length), greedy(), windows)
    twice = engine(windows=windows)
    for name in ("first", "second", "third"):
        twice.core.add(name, prompt(3, length), greedy())
        twice.finish()
        assert twice.tokens(name) == expected
    hit = twice.ended("third")
    assert hit is not None and hit.cached_tokens == length - 2


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("params", [greedy(20), SAMPLED], ids=["greedy", "sampled"])
def test_tokens_do_not_depend_on_preemption(windows: tuple[int | None, ...], params: SamplingParams) -> None:
    groups = len(engine(windows=windows).kv.groups)
    if block() == BLOCK:
        # Windows give blocks back as they pass, so less must be tight.
        length, budget, each = 15, 8, 14 if None in windows else 7
    else:
        length, budget, each = block() - 4, 64, 8  # six rows, each soon to want its second block
    tight = engine(windows=windows, blocks=1 + each * groups, rows=6, budget=budget)
    names = [f"r{i}" for i in range(6)]
    for i, name in enumerate(names):
        tight.core.add(name, prompt(10 + i, length), params)
    tight.finish()
    assert tight.scheduler.metrics().preemptions > 0
    for i, name in enumerate(names):
        assert tight.tokens(name) == alone(prompt(10 + i, length), params, windows)


def test_forks_share_the_prompt_and_equal_separate_samples() -> None:
    params = SamplingParams(n=4, temperature=1.0, seed=3, max_tokens=10, ignore_eos=True)
    forked = engine()
    forked.core.add("r", prompt(4, 26), params)
    forked.step()
    held = forked.kv.pool.used
    assert held <= -(-26 // block()) + 3, "the four choices hold the prompt's full blocks once"
    forked.finish()
    assert len({tuple(forked.tokens("r", i)) for i in range(4)}) == 4
    again = engine(blocks=30)
    again.core.add("other", prompt(5, 40), greedy(30))
    again.core.add("r", prompt(4, 26), params)
    again.finish()
    for i in range(4):
        assert again.tokens("r", i) == forked.tokens("r", i)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_history_of_arrivals_and_aborts_leaves_the_others_right(data: st.DataObject) -> None:
    """Random arrivals, lengths and aborts over a pool that forces preemption; every survivor equals its solo run."""
    windows = data.draw(st.sampled_from(WINDOWS))
    groups = len(engine(windows=windows).kv.groups)
    tight = engine(
        windows=windows,
        blocks=1 + groups * data.draw(st.integers(12, 20) if block() == BLOCK else st.integers(2, 4)),
        rows=5,
        budget=data.draw(st.integers(6, 40)),
    )
    requests = data.draw(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 12)), min_size=1, max_size=8))
    aborted = set()
    for i, (length, output) in enumerate(requests):
        tight.core.add(f"r{i}", prompt(i % 3, length), greedy(output))
        for _ in range(data.draw(st.integers(0, 4))):
            tight.step()
        if data.draw(st.integers(0, 4)) == 0:
            victim = data.draw(st.integers(0, i))
            tight.core.abort(f"r{victim}")
            aborted.add(victim)
    tight.finish()
    assert tight.kv.pool.used == 0
    for i, (length, output) in enumerate(requests):
        if i not in aborted:
            assert tight.tokens(f"r{i}") == alone(prompt(i % 3, length), greedy(output), windows)
