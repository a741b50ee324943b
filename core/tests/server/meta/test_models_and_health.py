"""The routes that generate nothing."""

from __future__ import annotations

import openai
import pytest
from server_fake import FakeEngine

from octavo.errors import EngineDead


def test_the_served_names_are_listed(client: openai.OpenAI) -> None:
    assert [card.id for card in client.models.list()] == ["fake", "org/fake-model"]


def test_a_card_is_found_by_its_name_slashes_and_all(client: openai.OpenAI, served) -> None:
    card = client.models.retrieve("org/fake-model")
    assert (card.id, card.object) == ("org/fake-model", "model")
    assert card.created > 0
    by_path = served.request("GET", "/v1/models/org/fake-model").json
    assert (by_path["id"], by_path["root"], by_path["max_model_len"]) == ("org/fake-model", "fake", 1000)


def test_an_unknown_name_is_a_404(client: openai.OpenAI) -> None:
    with pytest.raises(
        openai.NotFoundError, match=r"The model 'none' is not served here; served: fake, org/fake-model\."
    ) as caught:
        client.models.retrieve("none")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/none"])
def test_clients_of_anthropic_get_its_shapes(served, path: str) -> None:
    reply = served.request("GET", path, headers={"anthropic-version": "2023-06-01"})
    if path == "/v1/models":
        assert [model["type"] for model in reply.json["data"]] == ["model", "model"]
        return
    assert (reply.status, reply.json["type"], reply.json["error"]["type"]) == (404, "error", "not_found_error")
    assert reply.json["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]


def test_health_is_the_engine_s(served, engine: FakeEngine) -> None:
    assert served.request("GET", "/health").status == 200
    assert served.request("HEAD", "/health").status == 200
    engine.dead = EngineDead("the loop stopped")
    reply = served.request("GET", "/health")
    assert (reply.status, reply.error["code"], reply.headers["retry-after"]) == (503, "engine_dead", "10")
