"""Limits on a real server, as a user sets them: the template's time, the request's time, and the queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

LIMITS = {
    "template_seconds": "1",
    "template_memory": "64MiB",
    "request_seconds": "3",
    "queued_requests": "2",
    "n": "3",
}
TEMPLATE = (
    "{% if messages[0].content == 'loop' %}"
    + "".join(f"{{% for i{k} in range(99999) %}}" for k in range(3))
    + "{% endfor %}" * 3
    + "{% endif %}{% if messages[0].content == 'fill' %}{% set n = namespace(s='x' * 1000000) %}"
    "{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.content }}{% endfor %}"
)


@pytest.fixture(scope="module")
def url(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    template = tmp_path_factory.mktemp("template") / "looping.jinja"
    template.write_text(TEMPLATE)
    limits = [word for name, value in LIMITS.items() for word in ("--limit", f"{name}={value}")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "octavo.cli.main", "serve", str(smollm2_gguf), "--port", "0"),
            *("--max-model-len", "4096", "--max-num-seqs", "4", "--chat-template", str(template), *limits),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    url = next((line.split()[-1] for line in process.stdout if "ready at" in line), None)
    assert url
    yield url
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def chat(url: str, content: str) -> httpx.Response:
    messages = [{"role": "user", "content": content}]
    return httpx.post(f"{url}/chat/completions", json={"messages": messages, "max_tokens": 2}, timeout=60)


@pytest.mark.parametrize(("content", "limit"), [("loop", "template_seconds"), ("fill", "template_memory")])
def test_a_runaway_template_is_a_400_and_others_are_served_meanwhile(url: str, content: str, limit: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        runaway = pool.submit(chat, url, content)
        assert chat(url, "Hello").status_code == 200
        reply = runaway.result()
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("template_limit", "messages")
    assert limit in error["message"] and "chat_template" in error["message"]


def test_on_loopback_the_api_describes_itself(url: str) -> None:
    paths = httpx.get(url.removesuffix("/v1") + "/openapi.json", timeout=60).json()["paths"]
    assert "/v1/chat/completions" in paths


def test_a_request_beyond_a_limit_is_a_400(url: str) -> None:
    reply = httpx.post(f"{url}/completions", json={"prompt": "x", "n": 4}, timeout=60)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "limit_exceeded")


def test_a_full_queue_is_a_429_and_time_frees_it(url: str) -> None:
    """Four run and two wait, all for longer than they may; what comes on top is told to come back."""
    endless = {"prompt": "Once upon a time", "max_tokens": 3500, "ignore_eos": True}
    with ThreadPoolExecutor(12) as pool:
        posts = [pool.submit(httpx.post, f"{url}/completions", json=endless, timeout=60) for _ in range(12)]
        replies = [post.result() for post in posts]
    refused = [reply for reply in replies if reply.status_code == 429]
    late = [reply for reply in replies if reply.status_code == 504]
    assert refused and late and len(refused) + len(late) == 12, [reply.status_code for reply in replies]
    assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in refused)
    assert all(reply.headers["x-should-retry"] == "false" for reply in late)
    assert chat(url, "Hello").status_code == 200
