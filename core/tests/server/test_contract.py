"""Whatever the OpenAPI document lets a client send, the answer is one that it lists, and none is a failure of ours."""

from __future__ import annotations

from server.conftest import serving
from server.contract import check_server
from server_fake import FakeEngine

from octavo.server import ServerSettings
from octavo.server.apis import all_routes, openapi_document
from octavo.server.transport.limits import Limits


def test_every_answer_is_a_documented_one() -> None:
    settings = ServerSettings(limits=Limits(open_batches=10_000), openapi=True, tokenizer_info=True)
    engine = FakeEngine(tasks=frozenset({"generate", "embed", "score"}))
    with serving(engine, settings) as served:
        statuses = check_server(openapi_document(), f"http://127.0.0.1:{served.port}", examples=15)
    for route in (one for one in all_routes() if not one.hidden):
        path = route.path.replace(":path", "")
        passed = sum(statuses[route.method, path, status] for status in route.successes or (400,))
        assert passed > 0, f"nothing gets through to {route.method} {path}, so nothing is checked"
    assert max(status for _, _, status in statuses) < 500
