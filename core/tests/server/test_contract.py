"""Whatever the OpenAPI document lets a client send, the answer is one that it lists, and none is a failure of ours."""

from __future__ import annotations

from server.contract import check_server
from server.limited_server import serving
from server_fake import FakeEngine

from octavo.server.limits import Limits
from octavo.server.openapi import ROUTES, document


def test_every_answer_is_a_documented_one() -> None:
    with serving(FakeEngine(), Limits(), openapi=True) as served:
        statuses = check_server(document(), f"http://127.0.0.1:{served.port}", examples=25)
    for route in ROUTES:
        path = route.path.replace(":path", "")
        assert statuses[path, 404 if "{" in path else 200] > 0, "nothing gets through, so nothing is checked"
    assert max(status for _, status in statuses) < 500
