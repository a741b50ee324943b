"""What goes wrong inside one request ends that request; what goes wrong in the device ends the engine, loudly."""

from __future__ import annotations

from typing import Any

import pytest
from engine.faults import Faulty
from engine.tiny_engine import VOCAB, TinyEngine, alone, engine, greedy, prompt

from octavo.errors import ContextLengthExceeded, EngineDead, RequestError
from octavo.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("platform_name")


def _with_fault(*, raises: bool) -> TinyEngine:
    tiny = engine()
    tiny.runner._sampler = Faulty(666, raises=raises)
    return tiny


@pytest.mark.parametrize("raises", [True, False], ids=["exception", "nan"])
def test_a_fault_in_one_request_leaves_its_neighbours_alone(raises: bool) -> None:
    tiny = _with_fault(raises=raises)
    bad = SamplingParams(temperature=0.0, max_tokens=9, seed=666, ignore_eos=True)
    tiny.core.add("a", prompt(1, 9), greedy())
    tiny.core.add("bad", prompt(2, 17), bad)
    tiny.core.add("b", prompt(3, 40), greedy())
    tiny.finish()
    ended = tiny.ended("bad")
    assert ended is not None and ended.finish_reason == "error" and ended.error
    assert tiny.tokens("a") == alone(prompt(1, 9), greedy())
    assert tiny.tokens("b") == alone(prompt(3, 40), greedy())
    assert tiny.kv.pool.used == 0


def test_what_a_failed_request_computed_is_not_found_by_others() -> None:
    tiny = _with_fault(raises=False)
    tiny.core.add("bad", prompt(2, 33), SamplingParams(temperature=0.0, seed=666))
    tiny.finish()
    tiny.core.add("good", prompt(2, 33), greedy())
    tiny.finish()
    ended = tiny.ended("good")
    assert ended is not None and ended.cached_tokens == 0
    assert tiny.tokens("good") == alone(prompt(2, 33), greedy())


def test_a_device_that_stops_ends_the_engine_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = _with_fault(raises=True)
    monkeypatch.setattr(tiny.device, "health", lambda: "it caught fire")
    tiny.core.add("bad", prompt(2, 17), SamplingParams(seed=666))
    with pytest.raises(EngineDead, match="it caught fire"):
        tiny.finish()


@pytest.mark.parametrize(
    ("request_prompt", "params", "error", "says"),
    [
        ([], {}, RequestError, "empty"),
        ([1, VOCAB], {}, RequestError, f"token id {VOCAB}"),
        ([1, -1], {}, RequestError, "token id -1"),
        ([1] * 200, {}, ContextLengthExceeded, "200"),
        ([1], {"n": 41}, RequestError, "n is 41"),
        ([1], {"logit_bias": {VOCAB: 1.0}}, RequestError, "logit_bias"),
        ([1], {"stop_token_ids": [VOCAB]}, RequestError, "stop_token_ids"),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_once(
    request_prompt: list[int], params: dict[str, Any], error: type[Exception], says: str
) -> None:
    tiny = engine()
    with pytest.raises(error, match=says):
        tiny.core.add("r", request_prompt, SamplingParams(**params))
    assert not tiny.core.has_work


def test_requests_without_a_seed_differ_and_repeat_with_the_engine_seed() -> None:
    def run(seed: int) -> list[list[int]]:
        tiny = engine(seed=seed)
        for name in "ab":
            tiny.core.add(name, prompt(1, 5), SamplingParams(max_tokens=12, ignore_eos=True))
        tiny.finish()
        return [tiny.tokens("a"), tiny.tokens("b")]

    assert run(1) == run(1)
    assert run(1)[0] != run(1)[1]
    assert run(1) != run(2)


def test_a_closed_engine_says_so_and_touches_nothing() -> None:
    tiny = engine()
    tiny.core.add("running", prompt(1, 9), greedy())
    tiny.core.close()
    tiny.core.close()
    for use in (lambda: tiny.core.add("late", prompt(1, 9), greedy()), tiny.core.step):
        with pytest.raises(EngineDead, match="the engine was closed"):
            use()
