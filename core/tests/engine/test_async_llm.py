"""Streams over an engine in a thread: cancellation frees blocks, refusals and failures reach the right stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from engine.faults import Faulty
from engine.tiny_engine import TinyEngine, alone, block, engine, greedy, prompt

from octavo.engine.async_llm import AsyncLLM
from octavo.engine.client import InProcessClient
from octavo.errors import EngineDead, RequestError, RequestFailed
from octavo.sampling import SamplingParams
from octavo.scheduler import Request
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.usefixtures("platform_name")


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


def _serve(tiny: TinyEngine, tokenizer: Tokenizer) -> AsyncLLM:
    return AsyncLLM(InProcessClient(tiny.core), tokenizer, model_names=("tiny",), max_model_len=200)


async def _collect(llm: AsyncLLM, ids: list[int], params: SamplingParams, name: str) -> list[int]:
    return [t async for item in llm.generate(ids, params, request_id=name) for t in item.outputs[0].token_ids]


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it never happened")


async def test_streams_side_by_side_get_their_own_tokens(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    streams = [_collect(llm, prompt(i, 5 + i), greedy(), f"r{i}") for i in range(6)]
    assert await asyncio.gather(*streams) == [alone(prompt(i, 5 + i), greedy()) for i in range(6)]
    await llm.close()


async def test_text_of_the_deltas_is_the_text_of_the_tokens(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    items = [item async for item in llm.generate(prompt(1, 7), greedy(30), request_id="r")]
    tokens = [t for item in items for t in item.outputs[0].token_ids]
    assert "".join(item.outputs[0].text for item in items) == tokenizer.decode(tokens)
    assert [item.finished for item in items] == [False] * (len(items) - 1) + [True]
    await llm.close()


async def test_leaving_a_stream_frees_its_blocks(tokenizer: Tokenizer) -> None:
    tiny = engine()
    llm = _serve(tiny, tokenizer)
    stream = llm.generate(prompt(1, 30), greedy(150), request_id="r")
    await anext(stream)
    assert tiny.kv.pool.used > 0
    await stream.aclose()
    await _until(lambda: tiny.kv.pool.used == 0)
    await llm.close()


async def test_a_cancelled_task_frees_its_blocks(tokenizer: Tokenizer) -> None:
    tiny = engine()
    llm = _serve(tiny, tokenizer)
    task = asyncio.create_task(_collect(llm, prompt(1, 30), greedy(150), "r"))
    await _until(lambda: tiny.kv.pool.used > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: tiny.kv.pool.used == 0)
    await llm.close()


async def test_a_stop_string_ends_the_choice_in_the_engine_too(tokenizer: Tokenizer) -> None:
    tiny = engine()
    text = tokenizer.decode(alone(prompt(1, 7), greedy(40)))
    stop = text[5:8]
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, stop=stop)
    llm = _serve(tiny, tokenizer)
    items = [item async for item in llm.generate(prompt(1, 7), params, request_id="r")]
    assert "".join(item.outputs[0].text for item in items) == text[: text.index(stop)]
    assert (items[-1].outputs[0].finish_reason, items[-1].outputs[0].stop_reason) == ("stop", stop)
    await _until(lambda: not tiny.core.has_work)
    await llm.close()


async def test_a_refused_request_raises_before_its_first_item(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    running = asyncio.create_task(_collect(llm, prompt(1, 9), greedy(), "good"))
    with pytest.raises(RequestError, match="token id 500"):
        await anext(llm.generate([500], greedy(), request_id="bad"))
    assert await running == alone(prompt(1, 9), greedy())
    await llm.close()


async def test_what_is_no_prompt_ends_its_own_request_only(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    running = asyncio.create_task(_collect(llm, prompt(1, 9), greedy(), "good"))
    for wrong, message in (
        (["a", "b"], "the prompt has 'a' where a token id belongs"),
        ([1.5], r"the prompt has 1\.5 where a token id belongs"),
        (None, "a list of token ids, or a mapping with prompt or prompt_token_ids, not None"),
        ({"text": "x"}, "a prompt has prompt or prompt_token_ids, not 'text'"),
        ([2**70], f"the prompt has token id {2**70}; ids go from 0 to 96"),
    ):
        with pytest.raises(RequestError, match=message):
            await anext(llm.generate(wrong, greedy()))  # type: ignore[arg-type]
    assert await running == alone(prompt(1, 9), greedy())
    await llm.close()


async def test_an_exception_while_a_request_is_added_ends_that_request_only(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = engine()
    llm = _serve(tiny, tokenizer)
    add = tiny.scheduler.add

    def faulty(request: Request) -> None:
        if request.id == "bad":
            raise ZeroDivisionError("planted")
        add(request)

    monkeypatch.setattr(tiny.scheduler, "add", faulty)
    running = asyncio.create_task(_collect(llm, prompt(1, 9), greedy(), "good"))
    with pytest.raises(RequestFailed, match="ZeroDivisionError: planted"):
        await _collect(llm, prompt(2, 9), greedy(), "bad")
    assert await running == alone(prompt(1, 9), greedy())
    await llm.close()


async def test_metrics_show_the_waste_of_running_requests(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    assert (await llm.metrics()).kv.used == 0
    streams = [llm.generate(prompt(i, 9 + i), greedy(100), f"r{i}") for i in range(3)]
    for stream in streams:
        await anext(stream)
    seen = await llm.metrics()
    assert seen.running == 3 and seen.kv.used > 0
    assert 0 < seen.kv.wasted_slots <= 3 * (block() - 1)
    for stream in streams:
        await stream.aclose()
    await llm.close()
    with pytest.raises(EngineDead, match="closed"):
        await llm.metrics()


async def test_nobody_waiting_for_the_metrics_any_more_does_not_stop_the_engine(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    stream = llm.generate(prompt(1, 9), greedy(100), "r")
    await anext(stream)
    for _ in range(20):
        asked = asyncio.create_task(llm.metrics())
        await asyncio.sleep(0)
        asked.cancel()
    assert (await llm.metrics()).running == 1
    await stream.aclose()
    await llm.close()


async def test_two_running_requests_cannot_share_an_id(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    first = llm.generate(prompt(1, 9), greedy(), request_id="r")
    await anext(first)
    with pytest.raises(RequestError, match="in use"):
        await anext(llm.generate(prompt(1, 9), greedy(), request_id="r"))
    assert len([item async for item in first]) == 11
    await llm.close()


async def test_a_failed_request_raises_in_its_own_stream_only(tokenizer: Tokenizer) -> None:
    tiny = engine()
    tiny.runner._sampler = Faulty(666, raises=True)
    llm = _serve(tiny, tokenizer)
    good = asyncio.create_task(_collect(llm, prompt(1, 9), greedy(), "good"))
    with pytest.raises(RequestFailed, match="planted"):
        await _collect(llm, prompt(2, 9), SamplingParams(seed=666), "bad")
    assert await good == alone(prompt(1, 9), greedy())
    await llm.health()
    await llm.close()


async def test_a_dead_engine_is_told_to_every_stream(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = engine()
    tiny.runner._sampler = Faulty(666, raises=True)
    monkeypatch.setattr(tiny.device, "health", lambda: "unplugged")
    llm = _serve(tiny, tokenizer)
    streams = [
        asyncio.create_task(
            _collect(llm, prompt(1, 9), SamplingParams(seed=s, max_tokens=100, ignore_eos=True), str(s))
        )
        for s in (1, 666)
    ]
    for outcome in await asyncio.gather(*streams, return_exceptions=True):
        assert isinstance(outcome, EngineDead) and "unplugged" in str(outcome)
    with pytest.raises(EngineDead, match="the device stopped: unplugged"):
        await llm.health()
    with pytest.raises(EngineDead, match="the device stopped: unplugged"):
        await anext(llm.generate(prompt(1, 9), greedy(), request_id="late"))
    await llm.close()


async def test_closing_ends_streams_that_still_run(tokenizer: Tokenizer) -> None:
    llm = _serve(engine(), tokenizer)
    running = asyncio.create_task(_collect(llm, prompt(1, 9), greedy(180), "r"))
    await asyncio.sleep(0.05)
    await llm.close()
    with pytest.raises(EngineDead, match="the engine was closed"):
        await running
