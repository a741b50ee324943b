"""``octavo bench serve`` against the fake engine, whose tokens can be counted by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from server_fake import HELLO, WOR, FakeEngine, FakeOutput
from typer.testing import CliRunner

from octavo.cli.bench.load import AddedTime, Load, Outcome, Record
from octavo.cli.bench.serving import figures_of, measure
from octavo.cli.bench.wire import Address, Connection
from octavo.cli.main import app
from octavo.errors import ConfigError, RequestError
from octavo.sampling import SamplingParams
from octavo.server.loop import listen


def load(**fields) -> Load:
    return Load(**{"model": "fake", "prompts": 10, "concurrency": 3, "input_len": 7, "output_len": 5} | fields)


@pytest.fixture(autouse=True)
def five_tokens(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").script = (HELLO, WOR, WOR, WOR, WOR)


def test_every_request_is_asked_once_and_its_tokens_are_counted(served, engine: FakeEngine) -> None:
    figures = measure(served.url, load())
    assert (figures["requests"], figures["failed requests"], figures["output tokens"]) == (10, 0, 50)
    assert len(engine.seen) == 11, "and one to warm up"
    assert len({tuple(seen.prompt) for seen in engine.seen}) == 11, "all prompts differ: no cache may help"
    for seen in engine.seen:
        assert len(seen.prompt) == 7
        assert all(256 <= token < 1024 for token in seen.prompt)
        assert (seen.params.temperature, seen.params.max_tokens, seen.params.ignore_eos) == (0, 5, True)
    seconds = figures["seconds"]
    assert isinstance(seconds, float)
    assert figures["output tokens/s"] == pytest.approx(50 / seconds)
    assert figures["prompt and output tokens/s"] == pytest.approx((50 + 70) / seconds)


def test_no_more_streams_run_than_were_asked_for(served, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.pause = 0.005
    most = 0
    note = engine._note

    def watch(running: int, ended: str | None = None) -> None:
        nonlocal most
        note(running, ended)
        most = max(most, engine.running)

    monkeypatch.setattr(engine, "_note", watch)
    measure(served.url, load())
    assert most == 3


def test_chat_is_asked_in_words(served, engine: FakeEngine) -> None:
    figures = measure(served.url.removesuffix("/v1"), load(api="chat", model=""))
    assert figures["output tokens"] == 50
    words = engine.seen[1].text.removeprefix("user:").removesuffix("|assistant:")
    assert len(words.split()) == 7


def test_what_the_server_adds_is_its_own_measure(served, engine: FakeEngine) -> None:
    figures = measure(served.url, load())
    added = [figures[f"added by the server, p{percent} ms"] for percent in (50, 90, 99)]
    assert all(isinstance(value, float) and value > 0 for value in added)
    assert added == sorted(added)  # type: ignore[type-var]


def test_a_request_that_fails_is_told_and_the_others_count(
    served, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = engine._answer

    def fail_some(prompt: list[int], params: SamplingParams) -> AsyncGenerator[FakeOutput, None]:
        engine.fail_at = 2 if len(engine.seen) % 4 == 0 else None
        return answer(prompt, params)

    monkeypatch.setattr(engine, "_answer", fail_some)
    result = CliRunner().invoke(
        app, ["bench", "serve", "--url", served.url, *"--concurrency 1 --num-prompts 8 --output-len 5".split()]
    )
    assert isinstance(result.exception, RequestError)
    assert "2 of 8 requests failed: the server failed: " in str(result.exception)
    assert "failed requests" in result.output


def test_a_refusal_ends_it_with_the_server_s_words(served, engine: FakeEngine) -> None:
    with pytest.raises(RequestError, match=r"first request failed: the server answered 404: .*is not served here"):
        measure(served.url, load(model="none"))
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=f"no answer from 127.0.0.1:{port}.*octavo serve"):
        measure(f"127.0.0.1:{port}", load())


@pytest.mark.parametrize("words", ["--dataset sharegpt", "--api nonsense", "--request-rate 0", "--url ftp://x"])
def test_what_cannot_be_asked_is_refused_with_the_flag(words: str) -> None:
    result = CliRunner().invoke(app, ["bench", "serve", *words.split()])
    assert isinstance(result.exception, ConfigError)
    assert words.split(maxsplit=1)[0] in str(result.exception)


def test_the_figures_are_shown_and_saved(served, engine: FakeEngine, tmp_path: Path) -> None:
    words = f"--url {served.url} --num-prompts 4 --concurrency 2 --output-len 5 --request-rate 500 --save {tmp_path}/b"
    result = CliRunner().invoke(app, ["bench", "serve", *words.split()], catch_exceptions=False)
    assert "4 x 256+5, up to 2 streams, 500 requests/s" in result.output
    assert "added by the server to a token" in result.output
    assert json.loads((tmp_path / "b").read_text())["output tokens"] == 20


def test_figures_by_hand() -> None:
    records = [
        Record(asked=0.0, arrivals=[1.0, 2.0, 4.0], ended=5.0, prompt_tokens=10, tokens=4),
        Record(asked=1.0, arrivals=[3.0], ended=3.5, prompt_tokens=10, tokens=1),
        Record(asked=0.0, error="broken"),
    ]
    figures = figures_of(Outcome(10.0, records, AddedTime([0.001, 0.002, 0.004], [0, 98, 2])))
    assert figures["error"] == "broken"
    assert (figures["requests"], figures["failed requests"]) == (2, 1)
    assert figures["output tokens/s"] == 0.5
    assert figures["prompt and output tokens/s"] == 2.5
    assert figures["time to first token, p50 ms"] == 2000.0
    assert figures["time per output token, p50 ms"] == 1000.0, "(4 - 1) / (4 - 1)"
    assert figures["from event to event, p99 ms"] == 2000.0
    assert figures["whole answer, p99 ms"] == 5000.0
    assert figures["added by the server, p50 ms"] == 2.0
    assert figures["added by the server, p99 ms"] == 4.0


def test_added_time_is_that_of_the_load_alone() -> None:
    before, after = AddedTime([1.0, 2.0], [5, 1]), AddedTime([1.0, 2.0], [5, 3])
    assert after.since(before).percentile(50) == 2.0
    assert after.since(after).percentile(50) is None


@pytest.mark.parametrize(
    "body",
    [
        b'content-length: 24\r\n\r\ndata: {"choices": []}\n\n\n',
        b'\r\n: alive\r\n\r\ndata: {"usage": null}\r\n\r\ndata: [DONE]\r\n\r\n',
        b"Transfer-Encoding: chunked\r\n\r\n3\r\ndat\r\n6;x=y\r\na: {}\n\r\n1\r\n\n\r\n0\r\n\r\n",
    ],
    ids=["of known length", "until the end", "in chunks"],
)
async def test_answers_are_read_however_they_are_framed(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\n" + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        connection = Connection(Address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        assert len([event async for event in connection.events("/v1/completions", b"{}")]) == 1
        connection.close()
