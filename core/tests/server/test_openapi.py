"""The OpenAPI document: every route is in it, it is well formed, and it is served only where that is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from server.limited_server import serving
from server_fake import FakeEngine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient
from typer.testing import CliRunner

from octavo.cli.main import app as command
from octavo.server import ServerSettings, create_app
from octavo.server.apis import DOCUMENT_PATH, all_routes, openapi_document
from octavo.server.routing.document import document
from octavo.server.routing.route import Route, declared_routes, mounted_routes, route
from octavo.server.transport.limits import Limits


def served_routes(routes: Iterable[Any]) -> set[tuple[str, str]]:
    """Method and path of every route of an app."""
    return {(method, route.path) for route in routes for method in route.methods if method != "HEAD"}


def described_routes(described: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Method and path of every route in a document."""
    return {(method.upper(), path) for path, operations in described["paths"].items() for method in operations}


def test_the_document_has_every_route_of_the_app_and_no_other() -> None:
    app = create_app(FakeEngine(), ServerSettings(openapi=True, tokenizer_info=True))
    served = {(method, path.replace(":path}", "}")) for method, path in served_routes(app.routes)}
    assert served - {("GET", "/")} == described_routes(openapi_document())  # the page is not an API


def test_a_route_is_declared_in_one_place() -> None:
    class Greeting:
        @route("GET", "/v1/greeting/{name}", "Greet somebody", reply=dict[str, str])
        async def greet(self, _request: Request, name: str) -> Response:
            return JSONResponse({"hello": name})

    declared = [one for one, _ in declared_routes(Greeting)]
    assert described_routes(document(declared)) == {("GET", "/v1/greeting/{name}")}
    app = Starlette(routes=list(mounted_routes(Greeting())))
    assert served_routes(app.routes) == {("GET", "/v1/greeting/{name}")}
    assert TestClient(app).get("/v1/greeting/you").json() == {"hello": "you"}
    assert TestClient(app).head("/v1/greeting/you").status_code == 405


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    whole = openapi_document()
    for schema in whole["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in set(references(whole)):
        found: Any = whole
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found
    operations = [operation["operationId"] for path in whole["paths"].values() for operation in path.values()]
    assert len(set(operations)) == len(operations) == len([one for one in all_routes() if not one.hidden])


def test_what_a_request_may_hold_is_what_is_accepted() -> None:
    whole = openapi_document()
    for name, value in (("prompt", [[1, 2]]), ("prompt", ["a"]), ("prompt", "a"), ("stop", "x"), ("stop", None)):
        schema = whole["components"]["schemas"]["CompletionRequest"]["properties"][name]
        jsonschema.validate(value, schema)


def test_names_that_collide_are_refused() -> None:
    import msgspec
    from pydantic import BaseModel

    body = type("Twin", (BaseModel,), {})
    reply = msgspec.defstruct("Twin", [("x", int)])
    with pytest.raises(ValueError, match="Twin"):
        document([Route("POST", "/x", "x", body, reply)])


def test_models_of_one_name_are_told_apart_by_their_api() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert "input_tokens" in schemas["MessagesUsage"]["properties"]
    assert "prompt_tokens" in schemas["Usage"]["properties"]
    assert not [name for name in schemas if "." in name or "__" in name]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/chat/completions"])
def test_failures_have_the_shape_of_their_api(path: str) -> None:
    whole = openapi_document()
    answer = whole["paths"][path]["post"]["responses"]["404"]["$ref"]
    schema = {"$ref": f"{answer}/content/application~1json/schema", "components": whole["components"]}
    asked = {"model": "none", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    if path == "/v1/responses":
        asked = {"model": "none", "input": "Hi"}
    with serving(FakeEngine(), Limits()) as served:
        reply = served.request("POST", path, asked)
    assert reply.status == 404
    jsonschema.validate(reply.json, schema)
    assert ("request_id" in reply.json) == (path == "/v1/messages")


def test_the_document_is_served_where_the_operator_wants_it() -> None:
    with serving(FakeEngine(), Limits(), openapi=True) as served:
        assert served.request("GET", DOCUMENT_PATH).json == json.loads(json.dumps(openapi_document()))
    with serving(FakeEngine(), Limits()) as served:
        assert served.request("GET", DOCUMENT_PATH).status == 404


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(command, ["openapi"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(json.dumps(openapi_document()))
