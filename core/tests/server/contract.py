"""Sends a server what its OpenAPI document allows, and what it does not, and compares the answers with the document.

    python contract.py http://127.0.0.1:8000 [examples of each route and kind]

against any running server of Octavo's. It asks for `openapi.json` there, so the server needs --openapi.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import jsonschema
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

_MESSAGES = [{"role": "user", "content": "Hello"}]
_LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi", "max_tokens": 3}}\n'

SENSIBLE: Mapping[str, Any] = {
    "messages": _MESSAGES,
    "prompt": "Hello",
    "input": "Hello",
    "items": _MESSAGES,
    "text_1": "Hello",
    "text_2": ["Hello", "Hi"],
    "query": "Hello",
    "documents": [{"text": "Hello"}, {"text": "Hi"}],
    "tokens": [72, 105],
    "model": None,
    "temperature": 0.5,
    "endpoint": "/v1/completions",
    "completion_window": "24h",
    "output_expires_after": None,
    "file": _LINE,
}
"""What makes a request succeed that is random otherwise."""

_MAIN = {"input", "text_1", "text_2"}
"""What a request fails without although its schema can do without it."""

SHORT: Mapping[str, int] = {"max_tokens": 3, "max_output_tokens": 3}
"""What is asked of every API that has it, so that nobody waits for long answers."""


class Objects:
    """Makes what the paths of requests name."""

    def __init__(self, base_url: str, session: requests.Session) -> None:
        self._base_url = base_url
        self._session = session

    def _post(self, path: str, **sent: Any) -> Any:
        reply = self._session.post(self._base_url + path, timeout=60, **sent)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def file(self) -> str:
        """The id of a new file."""
        return str(self._post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", _LINE)})["id"])

    def path_parameters(self, path: str, *, background: bool) -> dict[str, str]:
        """Parameters of a path for which there is something; ``background``: a response that has events to follow."""
        made: dict[str, Callable[[], dict[str, str]]] = {
            "/v1/models": lambda: {"name": self._session.get(f"{self._base_url}/v1/models").json()["data"][0]["id"]},
            "/v1/files": lambda: {"id": self.file()},
            "/v1/batches": lambda: {"id": self._batch()},
            "/v1/responses": lambda: {"response_id": self._response(background=background)},
            "/v1/conversations": self._conversation,
        }
        found = made[path.partition("/{")[0]]()
        return {name: value for name, value in found.items() if f"{{{name}}}" in path}

    def _batch(self) -> str:
        body = {"input_file_id": self.file(), "endpoint": "/v1/completions", "completion_window": "24h"}
        return str(self._post("/v1/batches", json=body)["id"])

    def _response(self, *, background: bool) -> str:
        body = {"input": "Hello", "max_output_tokens": 3, "background": background}
        if not background:
            return str(self._post("/v1/responses", json=body)["id"])
        sent = {**body, "stream": True}
        with self._session.post(f"{self._base_url}/v1/responses", json=sent, stream=True, timeout=60) as reply:
            first = next(line for line in reply.iter_lines() if line.startswith(b"data: "))
        return str(json.loads(first.removeprefix(b"data: "))["response"]["id"])

    def _conversation(self) -> dict[str, str]:
        talk = self._post("/v1/conversations", json={})["id"]
        items = self._post(f"/v1/conversations/{talk}/items", json={"items": _MESSAGES})
        return {"conversation_id": talk, "item_id": items["data"][0]["id"]}


def check_server(
    document: Mapping[str, Any], base_url: str, *, examples: int, seed: int = 1
) -> Counter[tuple[str, str, int]]:
    """Raises at the first answer that the document does not allow. Returns how many answers to which method and path
    had which status.
    """
    schema = schemathesis.openapi.from_dict(dict(document))
    statuses: Counter[tuple[str, str, int]] = Counter()
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            described = document["paths"][operation.path][operation.method]
            _check(document, operation, GenerationMode.POSITIVE, base_url, session, examples, seed, statuses)
            given = [one for one in described.get("parameters", ()) if one["in"] == "query"]
            if given or "requestBody" in described:  # else there is nothing to get wrong: a name may be any text
                _check(document, operation, GenerationMode.NEGATIVE, base_url, session, examples, seed, statuses)
    return statuses


def _check(
    document: Mapping[str, Any],
    operation: Any,
    mode: GenerationMode,
    base_url: str,
    session: requests.Session,
    examples: int,
    seed: int,
    statuses: Counter[tuple[str, str, int]],
) -> None:
    described = document["paths"][operation.path][operation.method]
    stream = described["responses"].get("200", {"content": {}})["content"].get("text/event-stream")
    fields = _fields(document, described)
    objects = Objects(base_url, session)

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def answers_are_documented(case: Any, data: st.DataObject) -> None:
        if "{" in operation.path and data.draw(st.booleans()):
            case.path_parameters = objects.path_parameters(operation.path, background=data.draw(st.booleans()))
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict) and data.draw(st.integers(0, 3)):
            kept = data.draw(st.sets(st.sampled_from(sorted(case.body)), max_size=3)) if case.body else set()
            case.body = _made_sensible(case.body, kept, fields, objects)
            if "stream" in fields:
                case.body["stream"] = data.draw(st.booleans())
        response = case.call_and_validate(base_url=base_url, session=session, checks=CHECKS, timeout=60)
        statuses[operation.method.upper(), operation.path, response.status_code] += 1
        if response.status_code == 200 and response.headers["content-type"][0].startswith("text/event-stream"):
            check_events(document, stream["schema"], response.content)

    answers_are_documented()


def _fields(document: Mapping[str, Any], described: Mapping[str, Any]) -> set[str]:
    """What the body of an operation may hold."""
    found: set[str] = set()
    for content in described.get("requestBody", {"content": {}})["content"].values():
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            found |= set(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"])
    return found


def _made_sensible(body: Mapping[str, Any], kept: set[str], fields: set[str], objects: Objects) -> dict[str, Any]:
    """What is needed, as it should be, and of the rest what is kept."""
    needed = {name: value for name, value in SENSIBLE.items() if name in body or name in fields & _MAIN}
    short = {name: value for name, value in SHORT.items() if name in fields}
    if "input_file_id" in body:
        needed["input_file_id"] = objects.file()
    always = {"purpose", "metadata"} & body.keys()
    return {name: value for name, value in body.items() if name in kept | always} | needed | short


def check_events(document: Mapping[str, Any], schema: Mapping[str, Any], stream: bytes) -> None:
    """Raises unless every event of the stream is a documented one, and it ends as it should: by [DONE], or, where
    events have names, by an event that is the last by its name.
    """
    data = schema["properties"]["data"]
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    named = "event" in schema["required"]
    if not named:
        assert events.pop() == "data: [DONE]"
        data = data["anyOf"][0]
    documented = {**data["contentSchema"], "components": document["components"]}
    name = ""
    for event in events:
        if event.startswith(":"):
            continue
        if named:
            head, _, event = event.partition("\n")
            name = head.removeprefix("event: ")
        value = json.loads(event.removeprefix("data: "))
        jsonschema.validate(value, documented)
        assert not named or value["type"] == name
    assert not named or not events or name == "error" or name.rpartition(".")[2] in _LAST, name


_LAST = ("message_stop", "completed", "incomplete", "failed", "cancelled")


if __name__ == "__main__":
    url = sys.argv[1].removesuffix("/")
    fetched = requests.get(f"{url}/openapi.json", timeout=10).json()
    found = check_server(fetched, url, examples=int(sys.argv[2]) if len(sys.argv) > 2 else 100)
    for (method, path, status), count in sorted(found.items()):
        sys.stdout.write(f"{count:6} {status} {method:6} {path}\n")
    sys.stdout.write(f"{found.total()} answers, all as documented\n")
