"""Requests that come to where no token may follow: the client's mistake in every API, with its reason, and no 500."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import octavo_serve

from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from octavo.structured_output import StructuredOutput

MIDWAY = "[a-z ]*a[a-z ]{200}b[a-z ]{200}"
"""Compiles, and grows too complex after some dozens of tokens."""
STUCK: dict[str, tuple[dict[str, Any], str, str]] = {
    "regex": ({"structured_outputs": {"regex": MIDWAY}}, "structured_outputs.regex", "too complex"),
    "huge regex": (
        {"structured_outputs": {"regex": "^(a{1000}){1000}$"}},
        "structured_outputs.regex",
        "too many expressions",
    ),
    "choice": (
        {"structured_outputs": {"choice": ["red", "green"]}, "allowed_token_ids": [5]},
        "allowed_token_ids",
        "allowed_token_ids has none",
    ),
    "bad_words": (
        {"structured_outputs": {"choice": ["red"]}, "bad_words": ["re"]},
        "bad_words",
        "bad_words has all",
    ),
    "min_tokens": ({"allowed_token_ids": [2], "min_tokens": 3}, "min_tokens", "min_tokens forbids all"),
}
QUESTION = [{"role": "user", "content": "Say a."}]
APIS: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "a", "max_tokens": 600},
    "chat/completions": {"messages": QUESTION, "max_tokens": 600},
    "messages": {"messages": QUESTION, "max_tokens": 600},
    "responses": {"input": "Say a.", "max_output_tokens": 600},
}


@pytest.fixture(scope="module")
def client(smollm2_gguf: Path) -> Iterator[httpx.Client]:
    with octavo_serve(smollm2_gguf, "--max-model-len", "1024") as url, httpx.Client(timeout=120) as client:
        client.base_url = url.removesuffix("/v1")
        yield client


@pytest.mark.parametrize("asked", STUCK)
@pytest.mark.parametrize("api", APIS)
def test_it_is_a_400_with_its_reason(client: httpx.Client, api: str, asked: str) -> None:
    fields, param, reason = STUCK[asked]
    reply = client.post(f"/v1/{api}", json={**APIS[api], **fields, "temperature": 2, "seed": 1})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert reason in error["message"] and error["type"] == "invalid_request_error"
    assert api == "messages" or error["param"] == param


def error_in(event: dict[str, Any]) -> dict[str, Any] | None:
    """The error that an event of one of the APIs tells."""
    failed: dict[str, Any] | None = event.get("response", {}).get("error") or event.get("error")
    return failed


@pytest.mark.parametrize("asked", STUCK)
@pytest.mark.parametrize("api", APIS)
def test_a_stream_says_so(client: httpx.Client, api: str, asked: str) -> None:
    """As its status where nothing was sent yet, and as an event later."""
    fields, _, reason = STUCK[asked]
    reply = client.post(f"/v1/{api}", json={**APIS[api], **fields, "temperature": 2, "seed": 1, "stream": True})
    if reply.status_code == 400:
        error = reply.json()["error"]
    else:
        assert reply.status_code == 200
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        (error,) = [found for event in events if (found := error_in(event))]
    assert reason in error["message"]
    assert "internal" not in json.dumps(error) and "server_error" not in json.dumps(error)


@pytest.mark.parametrize("api", APIS)
def test_what_is_found_midway_is_an_event(client: httpx.Client, api: str) -> None:
    """A pattern of its own for each API: what one request has found of a pattern, the next one knows at once."""
    pattern = MIDWAY.replace("200", str(201 + list(APIS).index(api)))
    asked = {"structured_outputs": {"regex": pattern}, "temperature": 2, "seed": 1, "stream": True}
    reply = client.post(f"/v1/{api}", json={**APIS[api], **asked})
    assert reply.status_code == 200, "tokens were sent before"
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    (error,) = [found for event in events if (found := error_in(event))]
    assert "too complex" in error["message"] and "server_error" not in json.dumps(error)


def test_an_empty_list_of_allowed_ids_is_refused(client: httpx.Client) -> None:
    for api, body in APIS.items():
        reply = client.post(f"/v1/{api}", json={**body, "allowed_token_ids": []})
        assert reply.status_code == 400 and "allowed_token_ids is empty" in reply.json()["error"]["message"]


def test_a_word_is_not_written_however_it_is_spelled(client: httpx.Client) -> None:
    body = {"prompt": "Repeat the word: exaggerated exaggerated exaggerated", "temperature": 0, "max_tokens": 60}
    free = (client.post("/v1/completions", json=body)).json()["choices"][0]["text"]
    assert "exaggerated" in free
    for temperature in (0, 0.7, 1.5):
        asked = {**body, "bad_words": ["exaggerated"], "temperature": temperature, "seed": 3}
        held = (client.post("/v1/completions", json=asked)).json()["choices"][0]
        assert "exaggerated" not in held["text"] and held["finish_reason"] in ("length", "stop")


def test_offline_it_is_a_request_error(smollm2_gguf: Path) -> None:
    model = LLM(smollm2_gguf, max_model_len=512)
    asked = SamplingParams(structured=StructuredOutput(choice=["red"]), allowed_token_ids=[5])
    with pytest.raises(RequestError, match="allowed_token_ids has none") as caught:
        model.generate("a", asked, use_tqdm=False)
    assert caught.value.param == "allowed_token_ids"
    fine = model.generate("a", SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    assert len(fine[0].outputs[0].token_ids) == 2
    model.close()


def test_a_line_of_a_batch_has_it(client: httpx.Client) -> None:
    fields, param, reason = STUCK["choice"]
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {**APIS["completions"], **fields}}
    fine = {**line, "custom_id": "b", "body": {"prompt": "a", "max_tokens": 2}}
    lines = "".join(json.dumps(one) + "\n" for one in (line, fine))
    file = client.post("/v1/files", files={"file": ("in.jsonl", lines)}, data={"purpose": "batch"}).json()
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch = client.post("/v1/batches", json=asked).json()
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        batch = client.get(f"/v1/batches/{batch['id']}").json()
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    (failed,) = map(json.loads, client.get(f"/v1/files/{batch['error_file_id']}/content").text.splitlines())
    assert failed["response"]["status_code"] == 400
    error = failed["response"]["body"]["error"]
    assert reason in error["message"] and error["param"] == param
