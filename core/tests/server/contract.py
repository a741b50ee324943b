"""Sends a server what its OpenAPI document allows, and what it does not, and compares the answers with the document.

    python contract.py http://127.0.0.1:8000 [examples of each route and kind]

against any running server of Octavo's. It asks for `openapi.json` there, so the server needs --openapi.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
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

SENSIBLE: Mapping[str, Any] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "prompt": "Hello",
    "model": None,
    "max_tokens": 3,
    "temperature": 0.5,
}
"""What makes a request succeed that is random otherwise."""


def check_server(
    document: Mapping[str, Any], base_url: str, *, examples: int, seed: int = 1
) -> Counter[tuple[str, int]]:
    """Raises at the first answer that the document does not allow. Returns how many answers of which path had which
    status.
    """
    schema = schemathesis.openapi.from_dict(dict(document))
    statuses: Counter[tuple[str, int]] = Counter()
    with requests.Session() as session:
        for result in schema.get_all_operations():
            for mode in GenerationMode.POSITIVE, GenerationMode.NEGATIVE:
                _check(document, result.ok(), mode, base_url, session, examples, seed, statuses)
    return statuses


def _check(
    document: Mapping[str, Any],
    operation: Any,
    mode: GenerationMode,
    base_url: str,
    session: requests.Session,
    examples: int,
    seed: int,
    statuses: Counter[tuple[str, int]],
) -> None:
    described = document["paths"][operation.path][operation.method]
    if mode is GenerationMode.NEGATIVE and "requestBody" not in described:
        return  # there is nothing to get wrong: a name may be any text
    stream = described["responses"]["200"]["content"].get("text/event-stream")

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
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict) and data.draw(st.integers(0, 3)):
            kept = data.draw(st.sets(st.sampled_from(sorted(case.body)), max_size=3))
            case.body = _made_sensible(case.body, kept) | {"stream": data.draw(st.booleans())}
        response = case.call_and_validate(base_url=base_url, session=session, checks=CHECKS, timeout=60)
        statuses[operation.path, response.status_code] += 1
        if response.status_code == 200 and response.headers["content-type"][0].startswith("text/event-stream"):
            check_events(
                document, stream["schema"]["properties"]["data"]["anyOf"][0]["contentSchema"], response.content
            )

    answers_are_documented()


def _made_sensible(body: Mapping[str, Any], kept: set[str]) -> dict[str, Any]:
    """What is needed, as it should be, and of the rest what is kept."""
    needed = {name: value for name, value in SENSIBLE.items() if name in body or name == "max_tokens"}
    return {name: value for name, value in body.items() if name in kept} | needed


def check_events(document: Mapping[str, Any], schema: Mapping[str, Any], stream: bytes) -> None:
    """Raises unless every event of the stream is a documented one, and the last is [DONE]."""
    *events, last, rest = stream.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    documented = {**schema, "components": document["components"]}
    for event in events:
        if not event.startswith(":"):
            jsonschema.validate(json.loads(event.removeprefix("data: ")), documented)


if __name__ == "__main__":
    url = sys.argv[1].removesuffix("/")
    fetched = requests.get(f"{url}/openapi.json", timeout=10).json()
    found = check_server(fetched, url, examples=int(sys.argv[2]) if len(sys.argv) > 2 else 100)
    for (path, status), count in sorted(found.items()):
        sys.stdout.write(f"{count:6} {status} {path}\n")
    sys.stdout.write(f"{found.total()} answers, all as documented\n")
