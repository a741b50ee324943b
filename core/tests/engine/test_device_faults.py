"""What goes wrong in the device: a row that has no room fails alone, a slow device is waited for, a device that is lost
or does not come back ends the engine, and everybody who waits is told so.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from pathlib import Path

import pytest
from engine.tiny_engine import VOCAB, TinyEngine, alone, engine, greedy, prompt

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.client import EngineRequest, InProcessClient, News
from octavo.engine.watchdog import Watchdog
from octavo.errors import EngineDead
from octavo.text import Tokenizer, load_tokenizer
from octavo_fakechip import FakeChip

PROMPTS = {name: prompt(seed, 9 + seed) for seed, name in enumerate(("a", "b", "c"))}


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


def _on_chip(*faults: str) -> tuple[TinyEngine, FakeChip]:
    tiny = engine(platform="fakechip")
    assert isinstance(tiny.device, FakeChip)
    tiny.device.faults.plant(*faults)
    return tiny, tiny.device


def _serve(tiny: TinyEngine, tokenizer: Tokenizer, step_timeout: float) -> AsyncLLM:
    return AsyncLLM(InProcessClient(tiny.core, step_timeout), tokenizer, model_names=("tiny",), max_model_len=200)


async def _collect(llm: AsyncLLM, name: str) -> list[int]:
    items = llm.generate(PROMPTS[name], greedy(), request_id=name)
    return [t async for item in items for t in item.outputs[0].token_ids]


def test_a_step_that_has_no_room_for_its_rows_runs_row_by_row() -> None:
    tiny, chip = _on_chip("oom@rows:2")
    for name, ids in PROMPTS.items():
        tiny.core.add(name, ids, greedy())
    tiny.finish()
    assert {name: tiny.tokens(name) for name in PROMPTS} == {n: alone(ids, greedy()) for n, ids in PROMPTS.items()}
    assert chip.counters.steps > len(PROMPTS) * 12, "no step had more than one row"


def test_a_request_that_the_device_has_no_room_for_fails_alone() -> None:
    right = {name: alone(ids, greedy()) for name, ids in PROMPTS.items()}
    heavy = next(t for t in range(1, VOCAB) if not any(t in PROMPTS[n] + right[n] for n in PROMPTS))
    tiny, _ = _on_chip(f"oom@token:{heavy}")
    for name, ids in PROMPTS.items():
        tiny.core.add(name, ids, greedy())
    tiny.core.add("heavy", [1, heavy, 2], greedy())
    tiny.finish()
    ended = tiny.ended("heavy")
    assert ended is not None and ended.finish_reason == "error"
    assert ended.error is not None and "DeviceOutOfMemory" in ended.error and "64.0 MiB" in ended.error
    assert {name: tiny.tokens(name) for name in PROMPTS} == right
    assert tiny.kv.pool.used == 0


async def test_a_device_that_is_lost_ends_every_stream_at_once_with_its_reason(tokenizer: Tokenizer) -> None:
    tiny, _ = _on_chip("lost@step:5")
    llm = _serve(tiny, tokenizer, step_timeout=60)
    begun = time.monotonic()
    for outcome in await asyncio.gather(*(_collect(llm, name) for name in PROMPTS), return_exceptions=True):
        assert isinstance(outcome, EngineDead) and "fell off the bus at step 5" in str(outcome)
    assert time.monotonic() - begun < 5
    with pytest.raises(EngineDead, match="fell off the bus"):
        await llm.health()
    await llm.close()


async def test_a_device_that_does_not_come_back_is_given_up_and_everybody_is_told(tokenizer: Tokenizer) -> None:
    tiny, chip = _on_chip("hang@step:5")
    llm = _serve(tiny, tokenizer, step_timeout=2)
    for outcome in await asyncio.gather(*(_collect(llm, name) for name in PROMPTS), return_exceptions=True):
        assert isinstance(outcome, EngineDead)
        assert "has not come back from a step for 2 s (--step-timeout); restart the server" in str(outcome)
    assert chip.faults.hung.is_set()
    with pytest.raises(EngineDead, match="has not come back from a step for 2 s"):
        await llm.health()
    with pytest.raises(EngineDead, match="has not come back from a step for 2 s"):
        await _collect(llm, "a")
    with pytest.raises(EngineDead, match="has not come back from a step for 2 s"):
        await llm.metrics()
    await llm.close()  # returns, though the device is still there


def test_nothing_follows_the_news_of_death_though_the_device_comes_back_after_all() -> None:
    tiny, chip = _on_chip("hang@step:3")
    told: list[News] = []
    client = InProcessClient(tiny.core, step_timeout=2)
    client.start(told.extend)
    client.add(EngineRequest("a", tuple(PROMPTS["a"]), greedy()))
    assert chip.faults.hung.wait(20)
    client.close()  # waits for the step, until it is given up
    chip.faults.release()
    assert client._thread is not None
    client._thread.join(20)
    assert not client._thread.is_alive()
    assert [type(one).__name__ for one in told] == ["TokenEvent", "TokenEvent", "EngineDead"]


async def test_a_slow_device_is_waited_for_step_by_step(tokenizer: Tokenizer) -> None:
    tiny, _ = _on_chip("slow=0.1@step:1+")
    llm = _serve(tiny, tokenizer, step_timeout=60)
    assert await _collect(llm, "a") == alone(PROMPTS["a"], greedy())
    await llm.health()
    await llm.close()


def test_the_watchdog_barks_once_for_a_long_step_and_never_for_many_short_ones() -> None:
    looks, barks = itertools.count(), threading.Event()
    just_now = math.inf
    short = Watchdog(0.02, lambda: just_now if next(looks) % 2 else None, barks.set)
    short.start()
    while next(looks) < 40:
        time.sleep(0.01)
    assert not barks.is_set()
    short.stop()
    heard: list[float] = []
    long = Watchdog(0.01, lambda: 0.0, lambda: heard.append(time.monotonic()))
    long.start()
    while not heard:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(heard) == 1
