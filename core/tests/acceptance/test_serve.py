"""`octavo serve` on a real checkpoint, through the official client, as a user starts it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import anthropic
import httpx
import openai
import pytest
from served import OCTAVO, octavo_serve


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[str]:
    """The base URL of a running server."""
    with octavo_serve(smollm2_gguf, "--max-model-len", "1024", "--served-model-name", "smol") as url:
        yield url


@pytest.fixture(scope="module")
def client(server: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=server, api_key="none", max_retries=0)


def test_chat_streams_the_answer_that_comes_whole(client: openai.OpenAI) -> None:
    request = {
        "model": "smol",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 24,
    }
    whole = client.chat.completions.create(**request)  # type: ignore[call-overload]
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))  # type: ignore[call-overload]
    assert whole.choices[0].message.content
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_messages_stream_the_answer_that_comes_whole(server: str) -> None:
    claude = anthropic.Anthropic(base_url=server.removesuffix("/v1"), api_key="none", max_retries=0)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    request = {"model": "smol", "messages": question, "extra_body": {"temperature": 0}}
    whole = claude.messages.create(**request, max_tokens=24)  # type: ignore[call-overload]
    with claude.messages.stream(**request, max_tokens=24) as stream:  # type: ignore[arg-type]
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == whole.content[0].text != ""
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    counted = claude.messages.count_tokens(model="smol", messages=question)  # type: ignore[arg-type]
    for usage in (whole.usage, streamed.usage):
        assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted.input_tokens


def test_completions_draw_the_best(client: openai.OpenAI) -> None:
    request = {"model": "smol", "prompt": "Once", "max_tokens": 4, "seed": 5, "logprobs": 0}
    drawn = client.completions.create(**request, n=4)  # type: ignore[call-overload]
    best = client.completions.create(**request, n=2, best_of=4)  # type: ignore[call-overload]
    ranked = sorted(drawn.choices, key=lambda choice: -mean(choice.logprobs.token_logprobs))
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    assert best.usage.completion_tokens == drawn.usage.completion_tokens


def test_completions_score_a_prompt(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="smol", prompt="The sky is blue", echo=True, max_tokens=0, logprobs=1)
    scores = reply.choices[0].logprobs
    assert reply.choices[0].text == "The sky is blue" and scores is not None and scores.token_logprobs is not None
    assert scores.token_logprobs[0] is None and all(p < 0 for p in scores.token_logprobs[1:])


def test_responses_stream_continue_and_run_in_the_background(client: openai.OpenAI) -> None:
    request = {"model": "smol", "temperature": 0, "max_output_tokens": 24}
    whole = client.responses.create(**request, input="What is the capital of France?")
    with client.responses.stream(**request, input="What is the capital of France?") as stream:
        for event in stream:
            if event.type == "response.incomplete":
                assert event.response.output_text == whole.output_text
                break
        else:
            assert stream.get_final_response().output_text == whole.output_text
    chat = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=24,
    )
    assert whole.output_text and whole.output_text == chat.choices[0].message.content
    made = client.responses.create(**request, input="And of Spain?", previous_response_id=whole.id, background=True)
    while made.status in ("queued", "in_progress"):
        time.sleep(0.1)
        made = client.responses.retrieve(made.id)
    assert made.status in ("completed", "incomplete") and made.output_text
    assert made.usage is not None and whole.usage is not None
    assert made.usage.input_tokens > whole.usage.input_tokens


def test_errors_are_those_of_the_api(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="The model 'other' is not served here; served: smol"):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError, match=r"2,?0\d\d tokens|context"):
        client.completions.create(model="smol", prompt=[5] * 2000)
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model="smol",
            messages=[{"role": "user", "content": "x"}],
            tool_choice="required",
        )


def test_a_client_that_leaves_does_not_hold_up_the_next(server: str, client: openai.OpenAI) -> None:
    body = {"model": "smol", "prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True}
    for _ in range(3):
        with httpx.stream("POST", f"{server}/completions", json=body, timeout=60) as stream:
            next(stream.iter_lines())
    begun = time.monotonic()
    client.completions.create(model="smol", prompt="Hello", max_tokens=2)
    assert time.monotonic() - begun < 60


def _refused(*arguments: str) -> str:
    run = subprocess.run([*OCTAVO, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1 and run.stderr.count("\n") == 1, run.stderr
    return run.stderr


def test_what_cannot_be_served_is_one_clear_line(smollm2_gguf: Path, tmp_path: Path) -> None:
    assert "no config.json" in _refused("serve", str(tmp_path))
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    assert "bad.gguf" in _refused("serve", str(tmp_path / "bad.gguf"))
    assert "not installed" in _refused("serve", str(smollm2_gguf), "--platform", "acme")
    assert "--swap-space is not supported" in _refused("serve", str(smollm2_gguf), "--swap-space", "4")
    assert "no option --bananas" in _refused("serve", str(smollm2_gguf), "--bananas")
    assert "--block-size" in _refused("serve", str(smollm2_gguf), "--block-size", "48")
    assert "set 8192 or less" in _refused("serve", str(smollm2_gguf), "--max-model-len", "9000")
    assert "--database" in _refused("serve", str(smollm2_gguf), "--database", "nonsense")
    assert "--responses-max-age" in _refused("serve", str(smollm2_gguf), "--responses-max-age", "0")
    assert "tensor_parallel_size 2 is not supported" in _refused(
        "serve", str(smollm2_gguf), "--tensor-parallel-size", "2"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}" in _refused("serve", str(smollm2_gguf), "--port", str(port))
