"""The Files and Batches APIs over HTTP, through the official client and raw."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.types import Batch
from server.conftest import Serve, Served
from server_fake import FakeEngine

from octavo.server import ServerSettings
from octavo.server.transport.limits import Limits


def _lines(count: int, prefix: str = "c", url: str = "/v1/completions", **body: Any) -> bytes:
    lines = (
        {"custom_id": f"{prefix}{i}", "method": "POST", "url": url, "body": {"prompt": f"p{i}", **body}}
        for i in range(count)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _upload(client: openai.OpenAI, data: bytes, name: str = "in.jsonl") -> str:
    return client.files.create(file=(name, data), purpose="batch").id


def _begin(client: openai.OpenAI, data: bytes, endpoint: Any = "/v1/completions", **more: Any) -> Batch:
    file = _upload(client, data)
    return client.batches.create(input_file_id=file, endpoint=endpoint, completion_window="24h", **more)


def _ended(client: openai.OpenAI, id: str) -> Batch:
    for _ in range(3000):
        batch = client.batches.retrieve(id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.01)
    pytest.fail(f"{id} does not end")


def _content(client: openai.OpenAI, id: str | None) -> list[dict[str, Any]]:
    assert id is not None
    return [json.loads(line) for line in client.files.content(id).text.splitlines()]


def test_a_batch_from_upload_to_answers(client: openai.OpenAI, engine: FakeEngine) -> None:
    begun = _begin(client, _lines(10), metadata={"who": "me"})
    assert (begun.status, begun.object, begun.endpoint) == ("validating", "batch", "/v1/completions")
    assert begun.metadata == {"who": "me"} and begun.expires_at == begun.created_at + 24 * 3600
    batch = _ended(client, begun.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None and batch.request_counts.to_dict() == {
        "total": 10,
        "completed": 10,
        "failed": 0,
    }
    assert batch.error_file_id is None and batch.errors is None
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    assert batch.usage is not None and batch.usage.output_tokens == 50
    answers = _content(client, batch.output_file_id)
    assert sorted(answer["custom_id"] for answer in answers) == sorted(f"c{i}" for i in range(10))
    assert {answer["response"]["body"]["choices"][0]["text"] for answer in answers} == {"Hello, world!"}
    assert len(engine.seen) == 10
    made = client.files.retrieve(batch.output_file_id or "")
    assert (made.purpose, made.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert made.bytes == len(client.files.content(made.id).content)
    assert begun.id in [one.id for one in client.batches.list()]


def test_lines_that_fail_are_in_the_error_file_and_the_others_go_on(client: openai.OpenAI) -> None:
    data = _lines(2) + b"nonsense\n" + _lines(1) + _lines(1, "hot", temperature=-1) + _lines(1, "x", "/v1/embeddings")
    batch = _ended(client, _begin(client, data).id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (6, 2, 4)
    errors = {
        (error["custom_id"], (error["error"] or {}).get("code")) for error in _content(client, batch.error_file_id)
    }
    assert errors >= {(None, "invalid_json_line"), ("c0", "duplicate_custom_id"), ("hot0", None)}
    refused = next(error for error in _content(client, batch.error_file_id) if error["custom_id"] == "hot0")
    assert refused["response"]["status_code"] == 400
    assert refused["response"]["body"]["error"]["param"] == "temperature"
    assert batch.errors is not None and batch.errors.data is not None
    assert [error.line for error in batch.errors.data] == [3, 4, 6]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\n\n", "empty_file"),
        (b"nonsense\n", "invalid_json_line"),
        (_lines(1, url="/v1/chat/completions"), "mismatched_endpoint"),
        (_lines(41), "too_many_lines"),
    ],
)
def test_a_file_with_nothing_to_run_fails_the_batch(client: openai.OpenAI, data: bytes, code: str) -> None:
    batch = _ended(client, _begin(client, data).id)
    assert batch.status == "failed" and batch.failed_at
    assert batch.errors is not None and batch.errors.data is not None
    assert batch.errors.data[0].code == code
    assert batch.output_file_id is None and batch.error_file_id is None


def test_a_cancelled_batch_keeps_what_is_finished(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.02
    begun = _begin(client, _lines(40))
    engine.wait_until(lambda: len(engine.seen) >= 10)
    cancelling = client.batches.cancel(begun.id)
    assert cancelling.status in ("cancelling", "cancelled") and cancelling.cancelling_at
    batch = _ended(client, begun.id)
    assert batch.status == "cancelled" and batch.cancelled_at
    assert engine.ended == [] and 10 <= len(engine.seen) < 40
    assert len(_content(client, batch.output_file_id)) == len(engine.seen)
    with pytest.raises(openai.BadRequestError, match="is cancelled; there is nothing to cancel"):
        client.batches.cancel(begun.id)


def test_interactive_requests_are_answered_while_a_batch_runs(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.02
    begun = _begin(client, _lines(40))
    engine.wait_until(lambda: len(engine.seen) >= 4)
    assert engine.running <= 4  # of the batch
    assert client.completions.create(model="fake", prompt="now").choices[0].text == "Hello, world!"
    client.batches.cancel(begun.id)
    _ended(client, begun.id)


def test_more_batches_than_run_at_once_take_turns_and_a_waiting_one_is_cancelled_at_once(
    client: openai.OpenAI, engine: FakeEngine
) -> None:
    engine.pause = 0.02
    begun = [_begin(client, _lines(12, f"b{i}-")) for i in range(6)]
    engine.wait_until(lambda: len(engine.seen) >= 4)
    assert client.batches.retrieve(begun[-1].id).status == "validating"
    client.batches.cancel(begun[-1].id)
    assert _ended(client, begun[-1].id).status == "cancelled"
    assert client.batches.retrieve(begun[0].id).status == "in_progress"
    engine.pause = 0
    for batch in begun[:-1]:
        assert _ended(client, batch.id).status == "completed"


@pytest.fixture
def other(served: Any) -> Iterator[openai.OpenAI]:
    """A client with another key."""
    with openai.OpenAI(base_url=served.url, api_key="another", max_retries=0) as client:
        yield client


def test_nobody_sees_what_is_anothers(client: openai.OpenAI, other: openai.OpenAI) -> None:
    batch = _ended(client, _begin(client, _lines(1)).id)
    file, output = batch.input_file_id, batch.output_file_id or ""
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: other.files.retrieve(file), f"no file with the id '{file}'"),
        (lambda: other.files.content(output), f"no file with the id '{output}'"),
        (lambda: other.files.delete(file), f"no file with the id '{file}'"),
        (lambda: other.batches.retrieve(batch.id), f"no batch with the id '{batch.id}'"),
        (lambda: other.batches.cancel(batch.id), f"no batch with the id '{batch.id}'"),
        (
            lambda: other.batches.create(input_file_id=file, endpoint="/v1/completions", completion_window="24h"),
            f"no file with the id '{file}'",
        ),
    ]
    for call, message in calls:
        with pytest.raises(openai.NotFoundError, match=message) as caught:
            call()
        assert caught.value.code == "not_found"
    assert list(other.files.list()) == [] and list(other.batches.list()) == []
    assert client.files.retrieve(file).id == file


def test_files_are_listed_in_pages_kept_and_deleted(client: openai.OpenAI, served: Any) -> None:
    ids = [_upload(client, _lines(1), f"dir/{i}.jsonl") for i in range(5)]
    page = client.files.list(limit=2)
    assert [file.id for file in page.data] == ids[:2:-1] and page.has_more
    assert [file.id for file in page][:5] == ids[::-1]  # the client follows the pages
    ascending = [file.id for file in client.files.list(order="asc", purpose="batch")]
    assert [one for one in ascending if one in ids] == ids
    assert ids[0] not in [file.id for file in client.files.list(purpose="batch_output")]
    file = client.files.retrieve(ids[0])
    assert (file.filename, file.bytes, file.purpose, file.status) == ("0.jsonl", len(_lines(1)), "batch", "processed")
    assert file.expires_at == file.created_at + 30 * 24 * 3600
    assert client.files.content(ids[0]).content == _lines(1)
    assert client.files.delete(ids[0]).deleted
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match=f"There is no file with the id '{ids[0]}'"):
            call(ids[0])
    with pytest.raises(openai.BadRequestError, match="'after' is"):
        client.files.list(after=ids[0])
    for query in ("limit=0", "limit=x", "limit=10001", "order=up"):
        assert served.request("GET", f"/v1/files?{query}").status == 400
    assert served.request("GET", "/v1/batches?limit=101").status == 400


@pytest.mark.parametrize("what", ["files", "batches"])
def test_a_page_that_ends_with_the_list_has_no_more(client: openai.OpenAI, what: str) -> None:
    other = client.with_options(api_key=f"an owner of three {what}")  # a batch brings files of its own
    for _ in range(3):
        _upload(other, _lines(1)) if what == "files" else _begin(other, _lines(1))
    for limit, more in ((2, True), (3, False), (4, False)):
        assert getattr(other, what).list(limit=limit).has_more is more


def test_a_file_that_a_batch_reads_is_not_deleted(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.pause = 0.05
    begun = _begin(client, _lines(10))
    with pytest.raises(openai.BadRequestError, match=f"the input of {begun.id}") as caught:
        client.files.delete(begun.input_file_id)
    assert caught.value.code == "file_in_use"
    client.batches.cancel(begun.id)
    _ended(client, begun.id)
    assert client.files.delete(begun.input_file_id).deleted


def test_a_file_says_how_long_it_lasts(client: openai.OpenAI, served: Any) -> None:
    made = client.files.create(
        file=("a", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert made.expires_at == made.created_at + 3600
    for seconds in (10, 10**8):
        with pytest.raises(openai.BadRequestError, match="3600 to 2592000"):
            client.files.create(
                file=("a", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": seconds}
            )
    batch = _begin(client, _lines(1), output_expires_after={"anchor": "created_at", "seconds": 7200})
    output = client.files.retrieve(_ended(client, batch.id).output_file_id or "")
    assert output.expires_at == output.created_at + 7200


def _form(*parts: tuple[str, bytes], content_type: str = "multipart/form-data; boundary=XX") -> dict[str, Any]:
    body = b"".join(
        b"--XX\r\ncontent-disposition: form-data; " + head.encode() + b"\r\n\r\n" + data + b"\r\n"
        for head, data in parts
    )
    return {"body": body + b"--XX--\r\n", "headers": {"content-type": content_type}}


@pytest.mark.parametrize("word", ["%00", "..", "file-%2e%2e", "x" * 300, "%F0%9F%98%80", "a%20b"])
def test_a_word_that_is_no_id_is_not_found(served: Any, word: str) -> None:
    for path in (f"/v1/files/{word}", f"/v1/files/{word}/content", f"/v1/batches/{word}"):
        reply = served.request("GET", path)
        assert (reply.status, reply.error["code"]) == (404, "not_found"), path
    assert served.request("DELETE", f"/v1/files/{word}").status == 404
    assert served.request("GET", f"/v1/files?purpose={word}").json["data"] == []
    assert served.request("GET", f"/v1/files?after={word}").error["param"] == "after"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("../../etc/passwd", "passwd"), ("a\u202eb", "ab"), ("c:\\x\\y.jsonl", "y.jsonl"), ("é" * 300, "é" * 255)],
)
def test_a_file_has_a_name_that_can_be_shown(client: openai.OpenAI, given: str, shown: str) -> None:
    assert client.files.create(file=(given, b"x"), purpose="batch").filename == shown


FILE = ('name="file"; filename="a.jsonl"', b"{}")
PURPOSE = ('name="purpose"', b"batch")


@pytest.mark.parametrize(
    ("form", "status", "param"),
    [
        (_form(FILE, PURPOSE), 200, None),
        (_form(PURPOSE), 400, "file"),
        (_form(('name="file"', b"{}"), PURPOSE), 400, "file"),
        (_form(FILE), 400, "purpose"),
        (_form(FILE, ('name="purpose"', b"fine-tune")), 400, "purpose"),
        (_form((FILE[0], b""), PURPOSE), 400, "file"),
        (_form(FILE, FILE, PURPOSE), 400, None),
        (_form(FILE, PURPOSE, content_type="application/json"), 415, None),
        (_form(FILE, PURPOSE, content_type="multipart/form-data"), 400, None),
        (_form(FILE, PURPOSE, ("nonsense", b"")), 400, None),
    ],
)
def test_an_upload_that_is_wrong_says_so(served: Any, form: dict[str, Any], status: int, param: str | None) -> None:
    reply = served.request("POST", "/v1/files", **form)
    assert reply.status == status, reply.body
    if status != 200:
        assert reply.error["param"] == param


def test_a_web_page_of_another_origin_cannot_upload(served: Any) -> None:
    form = _form(FILE, PURPOSE)
    for origin, status in (("https://evil.example", 403), ("null", 403), (f"http://127.0.0.1:{served.port}", 200)):
        headers = {**form["headers"], "origin": origin}
        assert served.request("POST", "/v1/files", form["body"], headers).status == status


def test_files_have_a_limit_of_their_own(client: openai.OpenAI, served: Any) -> None:
    _upload(client, b"x" * 150_000)  # more than a body of JSON may have
    with pytest.raises(
        openai.APIStatusError, match=r"larger than 365536 bytes, the limit of this server \(body_bytes\)"
    ) as caught:
        _upload(client, b"x" * 1_000_000)
    assert caught.value.status_code == 413
    assert served.complete(prompt="x" * 150_000).status == 413


def test_an_owner_has_room_for_so_much(other: openai.OpenAI) -> None:
    kept = [_upload(other, b"x" * 290_000) for _ in range(3)]
    with pytest.raises(openai.APIStatusError, match="delete files first") as caught:
        _upload(other, b"x" * 290_000)
    assert (caught.value.status_code, caught.value.code) == (413, "storage_full")
    for file in kept:
        other.files.delete(file)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/files"}, "endpoint"),
        ({"completion_window": "24"}, "completion_window"),
        ({"completion_window": "721h"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {str(i): "v" for i in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "expires_after.seconds"),
        ({"endpoint": None}, "endpoint"),
    ],
)
def test_a_batch_that_is_wrong_says_so(client: openai.OpenAI, served: Any, fields: dict[str, Any], param: str) -> None:
    body = {"input_file_id": _upload(client, _lines(1)), "endpoint": "/v1/completions", "completion_window": "24h"}
    key = {"authorization": f"Bearer {client.api_key}"}
    reply = served.request("POST", "/v1/batches", body | fields, key)
    assert reply.status == (404 if "input_file_id" in fields else 400), reply.body
    assert reply.error["param"].startswith(param)


def test_an_output_is_no_input(client: openai.OpenAI) -> None:
    batch = _ended(client, _begin(client, _lines(1)).id)
    with pytest.raises(openai.BadRequestError, match="purpose batch_output, not batch"):
        client.batches.create(
            input_file_id=batch.output_file_id or "", endpoint="/v1/completions", completion_window="24h"
        )


def test_more_batches_than_may_be_open_are_refused_and_not_tried_again(serve: Serve) -> None:
    engine = FakeEngine(pause=0.05)
    with serve(engine, ServerSettings(limits=Limits(open_batches=1))) as served:
        with openai.OpenAI(base_url=served.url, api_key="none") as client:
            _begin(client, _lines(40))
            with pytest.raises(openai.RateLimitError, match="cancel one") as caught:
                _begin(client, _lines(1))
    assert caught.value.code == "too_many_batches"
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_a_part_of_a_file_can_be_asked_for(client: openai.OpenAI, served: Served) -> None:
    path = f"/v1/files/{_upload(client, b'0123456789')}/content"
    key = {"authorization": f"Bearer {client.api_key}"}
    part = served.request("GET", path, headers={**key, "range": "bytes=3-5"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"345", "bytes 3-5/10")
    several = served.request("GET", path, headers={**key, "range": "bytes=0-1,5-6"})
    assert (several.status, several.body) == (200, b"0123456789")
    beyond = served.request("GET", path, headers={**key, "range": "bytes=10-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, "bytes */10")
    assert "bytes=10-" in beyond.error["message"]
    nonsense = served.request("GET", path, headers={**key, "range": "lines=1-2"})
    assert (nonsense.status, nonsense.error["type"]) == (400, "invalid_request_error")
