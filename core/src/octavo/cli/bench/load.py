"""A load on a server: many streams, and when each of their tokens came."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from octavo.cli.bench.wire import Address, Connection
from octavo.errors import ConfigError, RequestError

_IDS = range(256, 1024)
"""Token ids of random prompts: pieces of words in every vocabulary we know, and special in none."""
_WORDS = "paper ink page sheet fold bind cover spine print press type leaf margin title index note".split()

ADDED = "/octavo/timing"


@dataclass(frozen=True)
class Load:
    """What is asked of the server."""

    model: str
    prompts: int
    concurrency: int
    input_len: int
    output_len: int
    api: Literal["completions", "chat"] = "completions"
    rate: float | None = None
    """Requests per second, at random intervals; None: whenever a stream is free."""
    seed: int = 0

    def body(self, number: int) -> bytes:
        """Request ``number``: its random prompt, greedy, the end of sequence ignored."""
        fields = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "ignore_eos": True,
            "max_tokens": self.output_len,
        }
        if self.api == "chat":
            words = random.Random(f"{self.seed} {number}").choices(_WORDS, k=self.input_len)
            fields["messages"] = [{"role": "user", "content": " ".join(words)}]
        else:
            fields["prompt"] = self.tokens(number)
        return msgspec.json.encode(fields)

    def tokens(self, number: int) -> list[int]:
        """The prompt of request ``number`` of the completions API."""
        return random.Random(f"{self.seed} {number}").choices(_IDS, k=self.input_len)

    @property
    def path(self) -> str:
        """Where it is asked."""
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


@dataclass
class Record:
    """How one request went. Times in seconds of one clock."""

    asked: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    """When each event with text came."""
    ended: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    """As the server counts them; its events where it does not tell."""
    error: str | None = None


@dataclass
class Outcome:
    """What a load brought."""

    seconds: float
    records: list[Record]
    added: AddedTime | None
    """None where the server does not measure it."""


class AddedTime(msgspec.Struct):
    """Octavo's own histogram: what the server added to tokens, from the engine's output to the socket."""

    added_seconds: list[float]
    counts: list[int]

    def since(self, before: AddedTime) -> AddedTime:
        """What came since an earlier state."""
        counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        return AddedTime(self.added_seconds, counts)

    def percentile(self, percent: float) -> float | None:
        """Upper end of the bucket that holds it, in seconds."""
        wanted = sum(self.counts) * percent / 100
        seen = 0
        for end, count in zip(self.added_seconds, self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return end
        return None


async def first_model(address: Address, api_key: str | None) -> str:
    """The first model that a server lists."""
    connection = Connection(address, api_key)
    status, body = await connection.get("/v1/models")
    connection.close()
    try:
        return str(msgspec.json.decode(body)["data"][0]["id"])
    except (msgspec.DecodeError, KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"{address.url} does not list its models (status {status}); name one with --model") from error


async def run_load(address: Address, load: Load, api_key: str | None = None) -> Outcome:
    """One request to warm up, then the load."""
    free = [Connection(address, api_key) for _ in range(load.concurrency)]
    try:
        warm = Record()
        await _ask(free[0], load, load.prompts, warm)
        if warm.error:
            raise RequestError(f"the first request failed: {warm.error}")
        before = await _added(free[0])
        records = [Record() for _ in range(load.prompts)]
        streams = asyncio.Semaphore(load.concurrency)

        async def one(number: int) -> None:
            try:
                connection = free.pop()
                await _ask(connection, load, number, records[number])
                free.append(connection)
            finally:
                streams.release()

        gaps = random.Random(load.seed)
        begun = due = time.perf_counter()
        tasks = []
        for number in range(load.prompts):
            if load.rate is not None:
                due += gaps.expovariate(load.rate)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await streams.acquire()
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)
        seconds = time.perf_counter() - begun
        after = await _added(free[0])
        return Outcome(seconds, records, after.since(before) if after and before else None)
    finally:
        for connection in free:
            connection.close()


async def _ask(connection: Connection, load: Load, number: int, record: Record) -> None:
    body = load.body(number)
    record.asked = time.perf_counter()
    try:
        async for event in connection.events(load.path, body):
            if any(choice.says for choice in event.choices):
                record.arrivals.append(time.perf_counter())
            if event.usage is not None:
                record.prompt_tokens = event.usage.prompt_tokens
                record.tokens = event.usage.completion_tokens
    except (RequestError, OSError, asyncio.IncompleteReadError, msgspec.DecodeError, ValueError) as error:
        record.error = str(error) or type(error).__name__
        connection.close()
    record.ended = time.perf_counter()
    record.tokens = record.tokens or len(record.arrivals)


async def _added(connection: Connection) -> AddedTime | None:
    status, body = await connection.get(ADDED)
    return msgspec.json.decode(body, type=AddedTime) if status == 200 else None
