"""/v1/conversations, through the official client."""

from __future__ import annotations

import openai
import pytest
from server_fake import FakeEngine


def _texts(items) -> list[str]:
    return [item.content[0].text for item in items]


def test_a_conversation_is_made_changed_and_deleted(client: openai.OpenAI) -> None:
    made = client.conversations.create(metadata={"a": "b"})
    assert made.id.startswith("conv_") and made.object == "conversation" and made.created_at > 0
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"} == client.conversations.retrieve(made.id).metadata
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
        client.conversations.retrieve(made.id)
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
        client.conversations.update(made.id, metadata={})
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
        client.conversations.items.create(made.id, items=[{"role": "user", "content": "x"}])


def test_items_are_added_listed_and_deleted(client: openai.OpenAI) -> None:
    made = client.conversations.create(items=[{"role": "user", "content": "a"}])
    added = client.conversations.items.create(
        made.id, items=[{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    )
    assert _texts(added.data) == ["b", "c"] and added.first_id == added.data[0].id
    assert _texts(client.conversations.items.list(made.id)) == ["c", "b", "a"]
    assert _texts(client.conversations.items.list(made.id, order="asc", limit=1)) == ["a", "b", "c"]
    b = added.data[0]
    assert client.conversations.items.retrieve(b.id, conversation_id=made.id) == b
    assert client.conversations.items.delete(b.id, conversation_id=made.id).id == made.id
    assert _texts(client.conversations.items.list(made.id)) == ["c", "a"]
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{b.id}' not found in conversation '{made.id}'"):
        client.conversations.items.retrieve(b.id, conversation_id=made.id)
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{b.id}' not found in conversation '{made.id}'"):
        client.conversations.items.delete(b.id, conversation_id=made.id)


def test_a_response_speaks_in_a_conversation(client: openai.OpenAI, engine: FakeEngine) -> None:
    made = client.conversations.create(
        items=[{"role": "user", "content": "Before"}, {"role": "assistant", "content": "b"}]
    )
    first = client.responses.create(model="fake", input="Hi", conversation=made.id)
    assert first.conversation is not None and first.conversation.id == made.id
    with client.responses.stream(model="fake", input="And?", conversation={"id": made.id}, store=False) as stream:
        stream.until_done()
    assert [seen.text for seen in engine.seen] == [
        "user:Before|assistant:b|user:Hi|assistant:",
        "user:Before|assistant:b|user:Hi|assistant:Hello, world!|user:And?|assistant:",
    ]
    items = client.conversations.items.list(made.id, order="asc").data
    assert _texts(items) == ["Before", "b", "Hi", "Hello, world!", "And?", "Hello, world!"]
    assert items[3].id == first.output[0].id


def test_a_failed_response_leaves_its_conversation_alone(served, engine: FakeEngine) -> None:
    made = served.request("POST", "/v1/conversations", {}).json["id"]
    engine.fail_at = 2
    assert served.respond(stream=True, conversation=made).named_events[-1]["type"] == "response.failed"
    assert served.request("GET", f"/v1/conversations/{made}/items").json == {
        "object": "list",
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


def test_an_item_of_a_taken_id_gets_a_new_one(client: openai.OpenAI) -> None:
    item = {"id": "msg_mine", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    made = client.conversations.create(items=[item, item])
    first, second = client.conversations.items.list(made.id, order="asc").data
    assert first.id == "msg_mine" and second.id != "msg_mine" and second.id.startswith("msg_")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": "x"}, "items"),
        ({"items": [{"role": "user", "content": "x"}] * 21}, "items"),
        ({"items": [{"role": "nobody", "content": "x"}]}, "items[0].role"),
        ({"items": [{"type": "item_reference", "id": "msg_x"}]}, "items[0].type"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served, body, param: str) -> None:
    reply = served.request("POST", "/v1/conversations", body)
    assert (reply.status, reply.error["param"]) == (400, param)
