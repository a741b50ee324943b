"""Streams of responses: the order of the events, and what the official client's accumulator makes of them."""

from __future__ import annotations

import json
import threading

import httpx
import openai
import pytest
from pydantic import BaseModel
from server_fake import HELLO, LINES, SEPARATOR, SMILE, FakeEngine


def test_the_events_come_in_the_order_of_the_api(served, engine: FakeEngine) -> None:
    engine.script = engine.script[:2]
    events = served.respond(stream=True).named_events
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[0]["sequence_number"] == 0
    created, completed = events[0]["response"], events[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert created["id"] == completed["id"]
    item = events[2]["item"]
    assert item == {"type": "message", "id": item["id"], "role": "assistant", "content": [], "status": "in_progress"}
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert events[3] == {"type": "response.content_part.added", "sequence_number": 3, "part": part, **at}
    delta = {"type": "response.output_text.delta", "sequence_number": 4, "delta": "Hello", "logprobs": [], **at}
    assert events[4] == delta
    assert events[6]["text"] == "Hello," and events[7]["part"] == {**part, "text": "Hello,"}
    assert completed["output"] == [events[8]["item"]]
    assert events[8]["item"] == {**item, "status": "completed", "content": [{**part, "text": "Hello,"}]}


def test_a_stream_ends_without_done(served) -> None:
    assert b"[DONE]" not in served.respond(stream=True).body


def test_the_stream_brings_what_comes_whole(served) -> None:
    whole = served.respond(top_logprobs=1).json
    final = served.respond(top_logprobs=1, stream=True).named_events[-1]["response"]
    for response in (whole, final):
        for name in ("id", "created_at", "completed_at"):
            del response[name]
        del response["output"][0]["id"]
    assert whole == final


def test_the_accumulator_takes_the_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="fake", input="Hi") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots == ["Hello", "Hello,", "Hello, wor", "Hello, world", "Hello, world!"]
    assert final.output_text == "Hello, world!" and final.status == "completed"


async def test_the_async_accumulator_takes_the_stream(served) -> None:
    async with openai.AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        async with client.responses.stream(model="fake", input="Hi") as stream:
            assert (await stream.get_final_response()).output_text == "Hello, world!"


def test_a_limit_ends_the_stream_incomplete(served) -> None:
    events = served.respond(stream=True, max_output_tokens=2).named_events
    assert [event["type"] for event in events[-4:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert events[-2]["item"]["status"] == "incomplete"
    assert events[-1]["response"]["status"] == "incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_failure_ends_the_stream_failed(served, engine: FakeEngine) -> None:
    engine.fail_at = 2
    events = served.respond(stream=True).named_events
    assert [event["type"] for event in events[-2:]] == ["response.output_text.delta", "response.failed"]
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert "secret" not in failed["error"]["message"]
    assert failed["output"][0]["status"] == "incomplete" and failed["usage"]["output_tokens"] == 2
    assert served.request("GET", f"/v1/responses/{failed['id']}").json == failed


def test_text_survives_as_it_is(served, engine: FakeEngine) -> None:
    engine.script = (HELLO, SEPARATOR, LINES, SMILE)
    reply = served.respond(stream=True)
    assert "\u2028" not in reply.body.decode()
    deltas = [event["delta"] for event in reply.named_events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hello\u2028two\nlines😀"


def test_logprobs_come_with_the_text_of_their_tokens(served, engine: FakeEngine) -> None:
    engine.silent = frozenset({0, 2})
    events = served.respond(stream=True, include=["message.output_text.logprobs"]).named_events
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [delta["delta"] for delta in deltas] == ["Hello,", " world", "!"]
    assert [[entry["token"] for entry in delta["logprobs"]] for delta in deltas] == [
        ["Hello", ","],
        [" wor", "ld"],
        ["!"],
    ]
    done = next(event for event in events if event["type"] == "response.output_text.done")
    assert done["logprobs"] == [entry for delta in deltas for entry in delta["logprobs"]]


def test_deltas_are_padded_on_request(served) -> None:
    events = served.respond(stream=True, stream_options={"include_obfuscation": True}).named_events
    sizes = {len(e["delta"] + e["obfuscation"]) for e in events if e["type"] == "response.output_text.delta"}
    assert sizes == {16}
    assert all("obfuscation" not in event for event in served.respond(stream=True).named_events)


def test_a_client_that_leaves_ends_the_response(served, engine: FakeEngine) -> None:
    engine.pause = 0.05
    engine.script = (HELLO,) * 1000
    with httpx.stream("POST", f"{served.url}/responses", json={"input": "Hi", "stream": True}) as stream:
        lines = stream.iter_lines()
        created = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
    engine.wait_until(lambda: engine.ended)
    assert served.request("GET", f"/v1/responses/{created['response']['id']}").status == 404


def test_streams_run_beside_each_other(served, engine: FakeEngine) -> None:
    engine.pause = 0.01
    texts: list[str] = []

    def read() -> None:
        with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
            with client.responses.stream(model="fake", input="Hi") as stream:
                texts.append(stream.get_final_response().output_text)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert texts == ["Hello, world!"] * 8


def test_an_empty_answer_is_an_empty_message(served, engine: FakeEngine) -> None:
    engine.script = (32, 10)
    events = served.respond(stream=True).named_events
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == " \n"


class Sum(BaseModel):
    a: int
    b: int


def test_a_type_is_parsed_out_of_the_text(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.script = tuple(b'{"a":1,"b":2}')
    parsed = client.responses.parse(model="fake", input="Hi", text_format=Sum)
    assert parsed.output_parsed == Sum(a=1, b=2)
    assert parsed.text is not None and parsed.text.format is not None and parsed.text.format.type == "json_schema"
    with client.responses.stream(model="fake", input="Hi", text_format=Sum) as stream:
        done = next(event for event in stream if event.type == "response.output_text.done")
        assert done.parsed == stream.get_final_response().output_parsed == Sum(a=1, b=2)
    for seen in engine.seen:
        assert seen.params.structured is not None and json.loads(seen.params.structured.json) == {
            **Sum.model_json_schema(),
            "additionalProperties": False,
        }


def test_a_form_is_asked_for_by_either_api(served, engine: FakeEngine) -> None:
    assert served.respond(text={"format": {"type": "json_object"}}).status == 200
    assert served.respond(structured_outputs={"choice": ["a", "b"]}).status == 200
    assert [seen.params.structured.kind for seen in engine.seen] == ["json_object", "choice"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"format": {"type": "bananas"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}}, "text.format"),
    ],
)
def test_a_format_that_cannot_be_is_refused(served, engine: FakeEngine, fields, param: str) -> None:
    reply = served.respond(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert not engine.seen
