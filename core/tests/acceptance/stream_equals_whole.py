"""Random requests to a real server, each sent twice: the stream must bring what the whole answer says, to the token.

    python stream_equals_whole.py MODEL [requests, 500] [seed, 0]

starts `octavo serve MODEL` and asks it; prints what differed, and leaves with 1 if anything did.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PROMPTS = [
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "List five emojis: 😀😃",
    "日本語で自己紹介をしてください。",
    "Write the word café ten times: café",
    "1, 2, 3, 4,",
    '<b>bold</b> and {"json": [1, 2',
    "Напиши короткое стихотворение.",
    "\u2028\u2029 odd separators \x85",
]
STOPS = [" the", "\n", ".", "e", "\n\n", "and", "\ufffd", ", ", " 1", "not there at all"]
WORKERS = 8
"""Requests at the same time: what else is in the batch must not matter."""


@dataclass
class Choice:
    """One choice, as one got it."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class Answer:
    """All choices, and the tokens that were counted; or the error."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: tuple[int, int] = (0, 0)
    error: Any = None


@dataclass(frozen=True)
class Request:
    """One random request: where it goes, and its body without ``stream``."""

    path: str
    body: dict[str, Any]


def draw(rng: random.Random) -> Request:
    """A request, greedy or with a seed."""
    body: dict[str, Any] = {"max_tokens": rng.randint(1, 40), "return_token_ids": True}
    if rng.random() < 0.4:
        body["temperature"] = 0
    else:
        body |= {"temperature": rng.choice([0.7, 1.0, 1.6]), "seed": rng.randint(-(2**63), 2**63 - 1)}
        body |= rng.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}])
    if rng.random() < 0.5:
        body["stop"] = rng.sample(STOPS, rng.randint(1, 3))
        body["include_stop_str_in_output"] = rng.random() < 0.3
    body |= rng.choice([{}, {}, {"n": rng.randint(2, 4)}])
    body |= rng.choice([{}, {}, {"skip_special_tokens": False}, {"ignore_eos": True}, {"min_tokens": 1}])
    body |= rng.choice([{}, {}, {"repetition_penalty": 1.2}, {"frequency_penalty": 0.5}, {"logit_bias": {"5": 2.0}}])
    prompt = rng.choice(PROMPTS)
    if rng.random() < 0.5:
        logprobs = rng.choice([{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": rng.randint(1, 5)}])
        return Request("/chat/completions", {"messages": [{"role": "user", "content": prompt}], **body, **logprobs})
    body |= rng.choice([{}, {"logprobs": rng.randint(0, 5)}])
    body |= rng.choice([{}, {}, {"echo": True}])
    several = rng.random() < 0.3
    return Request("/completions", {"prompt": rng.sample(PROMPTS, 2) if several else prompt, **body})


def ask_whole(client: httpx.Client, request: Request) -> Answer:
    """The answer in one piece."""
    reply = client.post(request.path, json=request.body)
    if reply.status_code != 200:
        return Answer(error=(reply.status_code, reply.json()["error"]["message"]))
    return _add(Answer(), reply.json())


def ask_stream(client: httpx.Client, request: Request) -> Answer:
    """The answer put together from its events."""
    body = {**request.body, "stream": True, "stream_options": {"include_usage": True}}
    answer = Answer()
    with client.stream("POST", request.path, json=body) as reply:
        if reply.status_code != 200:
            reply.read()
            return Answer(error=(reply.status_code, reply.json()["error"]["message"]))
        data = b"".join(reply.iter_bytes()).decode()
    *events, done, rest = data.split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), data[-300:]
    for event in events:
        if not event.startswith(":"):
            _add(answer, json.loads(event.removeprefix("data: ")))
    return answer


def _add(answer: Answer, reply: dict[str, Any]) -> Answer:
    for piece in reply["choices"]:
        choice = answer.choices.setdefault(piece["index"], Choice())
        assert choice.finish_reason is None, "a choice goes on after its end"
        said = piece.get("delta") or piece.get("message") or {"content": piece.get("text")}
        choice.text += said.get("content") or ""
        choice.token_ids += piece.get("token_ids") or []
        choice.logprobs += _entries(piece.get("logprobs"))
        choice.finish_reason = piece["finish_reason"]
        choice.stop_reason = piece.get("stop_reason")
    if reply.get("usage"):
        answer.usage = (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"])
    return answer


def _entries(logprobs: dict[str, Any] | None) -> list[Any]:
    """One entry per token, in either API's shape."""
    if logprobs is None:
        return []
    if "content" in logprobs:
        return list(logprobs["content"])
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return list(zip(*(logprobs[name] for name in names), strict=True))


def differences(whole: Answer, stream: Answer) -> list[str]:
    """What the two answers to one request do not agree in."""
    if whole.error or stream.error:
        return [] if whole.error == stream.error else [f"errors {whole.error} and {stream.error}"]
    found = [] if whole.usage == stream.usage else [f"usage {whole.usage} and {stream.usage}"]
    if whole.choices.keys() != stream.choices.keys():
        return [*found, f"choices {sorted(whole.choices)} and {sorted(stream.choices)}"]
    for index, one in whole.choices.items():
        other = stream.choices[index]
        for name in ("text", "token_ids", "logprobs", "finish_reason", "stop_reason"):
            a, b = getattr(one, name), getattr(other, name)
            if a != b:
                found.append(f"choice {index}: {name} {a!r} and {b!r}")
    return found


def compare(url: str, requests: Sequence[Request]) -> tuple[list[str], Counter[str]]:
    """Ask everything twice, several at a time. Returns the differences, and how many answers were of which kind."""
    kinds: Counter[str] = Counter()

    with httpx.Client(base_url=url, timeout=600, limits=httpx.Limits(max_connections=WORKERS)) as client:

        def ask(request: Request) -> list[str]:
            whole, stream = ask_whole(client, request), ask_stream(client, request)
            kinds["error" if whole.error else request.path] += 1
            kinds.update(f"finish {choice.finish_reason}" for choice in whole.choices.values())
            kinds["stop strings"] += sum(isinstance(c.stop_reason, str) for c in whole.choices.values())
            kinds["replacement characters"] += sum("\ufffd" in c.text for c in whole.choices.values())
            return [f"{json.dumps(request.body)}: {difference}" for difference in differences(whole, stream)]

        with ThreadPoolExecutor(WORKERS) as pool:
            found = [difference for one in pool.map(ask, requests) for difference in one]
    return found, kinds


@contextlib.contextmanager
def serving(model: Path) -> Iterator[str]:
    """The base URL of a server of this model."""
    process = subprocess.Popen(
        [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--port", "0", "--max-model-len", "1024"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    url = next((line.split()[-1] for line in process.stdout if "ready at" in line), None)
    assert url, "the server did not start"
    try:
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def main(model: str, count: str = "500", seed: str = "0") -> int:
    """The command."""
    rng = random.Random(int(seed))
    requests = [draw(rng) for _ in range(int(count))]
    with serving(Path(model)) as url:
        found, kinds = compare(url, requests)
    for line in found:
        sys.stdout.write(line + "\n")
    sys.stdout.write(f"{len(requests)} requests, {len(found)} differences; {dict(kinds)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
