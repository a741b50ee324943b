"""Background responses: queued, followed, resumed, cancelled."""

from __future__ import annotations

import time

import openai
import pytest
from openai.types.responses import Response
from server_fake import HELLO, FakeEngine

from octavo.errors import QueueFull


def _wait(client: openai.OpenAI, id: str) -> Response:
    """Poll as the API's documentation tells to."""
    for _ in range(500):
        response = client.responses.retrieve(id)
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.02)
    raise AssertionError(f"{id} is still {response.status}")


def test_a_background_response_is_polled_to_its_end(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.02
    made = client.responses.create(model="fake", input="Hi", background=True)
    assert made.status == "queued" and made.background and made.output == []
    done = _wait(client, made.id)
    assert done.status == "completed" and done.output_text == "Hello, world!" and done.usage is not None
    client.responses.create(model="fake", input="And?", previous_response_id=made.id)
    assert engine.seen[-1].text == "user:Hi|assistant:Hello, world!|user:And?|assistant:"


def test_one_that_still_runs_is_in_progress_and_cannot_be_continued(served, client, engine: FakeEngine) -> None:
    engine.pause = 0.05
    engine.script = (HELLO,) * 1000
    made = client.responses.create(model="fake", input="Hi", background=True)
    for _ in range(500):
        if client.responses.retrieve(made.id).status == "in_progress":
            break
        time.sleep(0.02)
    with pytest.raises(openai.BadRequestError, match="in_progress"):
        client.responses.create(model="fake", input="And?", previous_response_id=made.id)
    client.responses.cancel(made.id)


def test_a_failure_is_found_by_polling(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.fail_at = 0
    failed = _wait(client, client.responses.create(model="fake", input="Hi", background=True).id)
    assert failed.status == "failed" and failed.error is not None and failed.error.code == "server_error"
    assert "secret" not in failed.error.message
    engine.error = QueueFull("full")
    failed = _wait(client, client.responses.create(model="fake", input="Hi", background=True).id)
    assert failed.error is not None and failed.error.code == "rate_limit_exceeded"


def test_a_stream_in_the_background_is_followed_live_and_resumed(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.02
    stream = client.responses.create(model="fake", input="Hi", background=True, stream=True)
    begun = [next(stream) for _ in range(5)]
    assert [event.type for event in begun[:4]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
    ]
    stream.close()  # the response goes on
    name = begun[0].response.id
    rest = list(client.responses.retrieve(name, stream=True, starting_after=4))
    assert [event.sequence_number for event in rest] == list(range(5, 5 + len(rest)))
    assert rest[-1].type == "response.completed" and rest[-1].response.output_text == "Hello, world!"
    assert not engine.ended
    replayed = list(client.responses.retrieve(name, stream=True))
    assert replayed == [*begun, *rest]
    assert list(client.responses.retrieve(name, stream=True, starting_after=len(replayed) - 1)) == []


def test_the_accumulator_takes_a_background_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="fake", input="Hi", background=True) as stream:
        final = stream.get_final_response()
    assert final.output_text == "Hello, world!"
    with client.responses.stream(response_id=final.id) as stream:
        assert stream.get_final_response().output_text == "Hello, world!"


def test_one_that_was_not_to_be_streamed_is_not(client: openai.OpenAI) -> None:
    for extra in ({}, {"background": True}, {"stream": True}):
        made = client.responses.create(model="fake", input="Hi", **extra)
        name = list(made)[-1].response.id if "stream" in extra else made.id
        with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
            client.responses.retrieve(name, stream=True)


def test_a_cancelled_response_ends_and_stays_so(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.05
    engine.script = (HELLO,) * 1000
    stream = client.responses.create(model="fake", input="Hi", background=True, stream=True)
    begun = [next(stream) for _ in range(8)]
    name = begun[0].response.id
    assert client.responses.cancel(name).status == "cancelled"
    engine.wait_until(lambda: engine.ended)
    last = list(stream)[-1]
    assert (last.type, last.code) == ("error", "response_cancelled")
    assert client.responses.retrieve(name).status == "cancelled"
    assert client.responses.cancel(name).status == "cancelled"
    [created, ended] = client.responses.retrieve(name, stream=True)
    assert (created.type, ended.type, ended.code) == ("response.created", "error", "response_cancelled")


def test_only_background_responses_are_cancelled(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="Hi")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(made.id)
    done = _wait(client, client.responses.create(model="fake", input="Hi", background=True).id)
    assert client.responses.cancel(done.id).status == "completed"


def test_deleting_a_running_response_ends_it(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.05
    engine.script = (HELLO,) * 1000
    made = client.responses.create(model="fake", input="Hi", background=True)
    engine.wait_until(lambda: engine.running)
    client.responses.delete(made.id)
    engine.wait_until(lambda: engine.ended)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
        client.responses.retrieve(made.id)


def test_a_background_response_speaks_in_its_conversation(client: openai.OpenAI) -> None:
    conversation = client.conversations.create()
    _wait(client, client.responses.create(model="fake", input="Hi", background=True, conversation=conversation.id).id)
    items = client.conversations.items.list(conversation.id, order="asc").data
    assert [item.content[0].text for item in items] == ["Hi", "Hello, world!"]


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=x", "stream=true&starting_after=-1"])
def test_a_query_that_cannot_be_is_refused(served, query: str) -> None:
    made = served.respond().json["id"]
    reply = served.request("GET", f"/v1/responses/{made}?{query}")
    assert reply.status == 400 and reply.error["param"] in ("stream", "starting_after")
