"""What is stored: retrieved, listed, deleted, continued, and seen by its owner alone."""

from __future__ import annotations

import openai
import pytest
from server_fake import FakeEngine

OTHER = {"authorization": "Bearer somebody-else"}


def test_a_response_is_retrieved_as_it_was_answered(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="Hi", metadata={"a": "b"})
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()


def test_a_stream_is_stored_before_its_last_event(served) -> None:
    last = served.respond(stream=True).named_events[-1]["response"]
    assert served.request("GET", f"/v1/responses/{last['id']}").json == last


def test_a_response_that_is_not_to_be_stored_is_not(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="Hi", store=False)
    with pytest.raises(openai.NotFoundError, match=made.id):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{made.id}' not found") as caught:
        client.responses.create(model="fake", input="More", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_deleted_response_is_gone(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="Hi")
    client.responses.delete(made.id)
    for use in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
            use(made.id)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
        client.responses.input_items.list(made.id)


def test_what_one_owner_stores_no_other_finds(served) -> None:
    made = served.respond().json
    path = f"/v1/responses/{made['id']}"
    conversation = served.request("POST", "/v1/conversations", {}).json["id"]
    for method, where in (
        ("GET", path),
        ("GET", f"{path}?stream=true"),
        ("DELETE", path),
        ("POST", f"{path}/cancel"),
        ("GET", f"{path}/input_items"),
        ("GET", f"/v1/conversations/{conversation}"),
        ("GET", f"/v1/conversations/{conversation}/items"),
        ("DELETE", f"/v1/conversations/{conversation}"),
    ):
        theirs = served.request(method, where, headers=OTHER)
        assert (theirs.status, theirs.error["code"]) == (404, "not_found"), where
    assert served.respond(OTHER, previous_response_id=made["id"]).error["code"] == "previous_response_not_found"
    assert served.respond(OTHER, conversation=conversation).status == 404
    reference = [{"type": "item_reference", "id": made["output"][0]["id"]}]
    assert served.respond(OTHER, input=reference).status == 404
    assert served.request("GET", path).status == 200


def test_input_items_are_listed_by_pages(client: openai.OpenAI) -> None:
    texts = [f"m{i}" for i in range(5)]
    made = client.responses.create(model="fake", input=[{"role": "user", "content": text} for text in texts])

    def told(items) -> list[str]:
        return [item.content[0].text for item in items]

    assert told(client.responses.input_items.list(made.id)) == texts[::-1]  # the client goes from page to page
    page = client.responses.input_items.list(made.id, limit=2, order="asc")
    assert told(page.data) == ["m0", "m1"] and page.has_more
    assert told(page) == texts
    behind = client.responses.input_items.list(made.id, order="desc", after=page.data[1].id)
    assert told(behind.data) == ["m0"] and not behind.has_more
    item = page.data[0]
    assert (item.type, item.role, item.status, item.content[0].type) == ("message", "user", "completed", "input_text")


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=nobody", "after")]
)
def test_a_page_that_cannot_be_is_refused(served, query: str, param: str) -> None:
    made = served.respond().json["id"]
    reply = served.request("GET", f"/v1/responses/{made}/input_items?{query}")
    assert (reply.status, reply.error["param"]) == (400, param)


def test_a_response_continues_another_without_its_instructions(client: openai.OpenAI, engine: FakeEngine) -> None:
    first = client.responses.create(model="fake", instructions="One.", input="Hi")
    second = client.responses.create(model="fake", instructions="Two.", input="And?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    client.responses.create(model="fake", input="Well?", previous_response_id=second.id)
    assert [seen.text for seen in engine.seen] == [
        "system:One.|user:Hi|assistant:",
        "system:Two.|user:Hi|assistant:Hello, world!|user:And?|assistant:",
        "user:Hi|assistant:Hello, world!|user:And?|assistant:Hello, world!|user:Well?|assistant:",
    ]
    [own] = client.responses.input_items.list(second.id).data
    assert own.content[0].text == "And?"


def test_a_history_with_a_hole_is_told(client: openai.OpenAI) -> None:
    first = client.responses.create(model="fake", input="Hi")
    second = client.responses.create(model="fake", input="And?", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match=f"{first.id}.*on which '{second.id}' stands"):
        client.responses.create(model="fake", input="Well?", previous_response_id=second.id)


def test_a_response_that_did_not_finish_cannot_be_continued(served, engine: FakeEngine) -> None:
    engine.fail_at = 2
    failed = served.respond(stream=True).named_events[-1]["response"]["id"]
    engine.fail_at = None
    reply = served.respond(previous_response_id=failed)
    assert (reply.status, reply.error["param"]) == (400, "previous_response_id")
    assert "failed" in reply.error["message"]
    cut = served.respond(max_output_tokens=1).json["id"]
    assert served.respond(previous_response_id=cut).status == 200


def test_items_are_referred_to(client: openai.OpenAI, engine: FakeEngine) -> None:
    first = client.responses.create(model="fake", input="Hi")
    client.responses.create(
        model="fake",
        input=[
            {"role": "user", "content": "Before"},
            {"type": "item_reference", "id": first.output[0].id},
            {"role": "user", "content": "After"},
        ],
    )
    assert engine.seen[-1].text == "user:Before|assistant:Hello, world!|user:After|assistant:"
    with pytest.raises(openai.NotFoundError, match="msg_nobody"):
        client.responses.create(model="fake", input=[{"type": "item_reference", "id": "msg_nobody"}])


def test_truncation_leaves_out_the_oldest_turns(client: openai.OpenAI, engine: FakeEngine) -> None:
    turns = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "1st"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "2nd"},
        {"role": "user", "content": "third"},
    ]
    for room, kept in (
        (200, "user:first|assistant:1st|user:second|assistant:2nd|user:third|"),
        (58, "user:second|assistant:2nd|user:third|"),
        (57, "user:third|"),
    ):
        engine.max_model_len = room
        got = client.responses.create(model="fake", input=turns, instructions="I", truncation="auto")
        assert engine.seen[-1].text == f"system:I|{kept}assistant:"
        assert got.usage.input_tokens <= room - 1
        assert len(client.responses.input_items.list(got.id).data) == 5
    engine.max_model_len = 20
    with pytest.raises(
        openai.BadRequestError,
        match="The input has 31 tokens, and the context of 20 leaves room for 19; shorten the last message",
    ) as caught:
        client.responses.create(model="fake", input=turns, truncation="auto", instructions="I")
    assert caught.value.code == "context_length_exceeded"


def test_truncation_leaves_room_for_the_output(client: openai.OpenAI, engine: FakeEngine) -> None:
    turns = [
        {"role": "user", "content": "x" * 20},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z"},
    ]
    engine.max_model_len = 100
    client.responses.create(model="fake", input=turns, truncation="auto", max_output_tokens=40)
    client.responses.create(model="fake", input=turns, truncation="auto", max_output_tokens=49)
    client.responses.create(model="fake", input=turns, truncation="auto", max_output_tokens=4000)
    assert [seen.text.count("x") for seen in engine.seen] == [20, 0, 0]


@pytest.mark.parametrize("name", ["%00", "a%00b", "x" * 5000, "%F0%9F%98%80", "..%2Fx", "%ED%A0%80", "'%20or%201=1"])
def test_any_name_is_simply_not_found(served, name: str) -> None:
    made = served.request("POST", "/v1/conversations", {}).json["id"]
    for path in (f"responses/{name}", f"conversations/{name}", f"conversations/{made}/items/{name}"):
        reply = served.request("GET", f"/v1/{path}")
        assert (reply.status, reply.error["type"]) == (404, "invalid_request_error"), path
    assert served.request("GET", f"/v1/conversations/{made}/items?after={name}").status == 400
