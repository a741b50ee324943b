"""A batch file's lines: which are requests, and what is said of the others."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.batch.lines import AnyLine, BadLine, CustomIds, Line, LineReader, Rules, raw_lines, survey

RULES = Rules(frozenset({"/v1/completions", "/v1/chat/completions", "/v1/responses"}), max_body_bytes=2000)


def read(data: bytes, rules: Rules = RULES) -> list[AnyLine]:
    reader = LineReader(io.BytesIO(data), rules)
    lines: list[AnyLine] = []
    while chunk := reader.read():
        lines += chunk
    reader.close()
    return lines


def line(**fields: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Hi"}} | fields


def one(rules: Rules = RULES, **fields: Any) -> AnyLine:
    (got,) = read(json.dumps({k: v for k, v in line(**fields).items() if v is not ...}).encode(), rules)
    return got


def test_a_good_line_is_a_request() -> None:
    assert one() == Line(1, "a", "/v1/completions", b'{"prompt":"Hi"}')
    assert isinstance(one(method=...), Line)


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"custom_id": ...}, "missing_required_parameter", "no custom_id"),
        ({"custom_id": ""}, "invalid_custom_id", "1 to 512 characters"),
        ({"custom_id": 7}, "invalid_custom_id", "not 7"),
        ({"custom_id": "x" * 513}, "invalid_custom_id", "1 to 512 characters"),
        ({"method": "GET"}, "invalid_method", "'GET'"),
        ({"url": ...}, "missing_required_parameter", "no url"),
        ({"url": "/v1/files"}, "invalid_url", "'/v1/files'"),
        ({"url": ["/v1/completions"]}, "invalid_url", "none that a batch"),
        ({"body": ...}, "invalid_body", "not a JSON object"),
        ({"body": "text"}, "invalid_body", "not a JSON object"),
        ({"body": {"stream": True}}, "unsupported_parameter", "stream has no meaning"),
        ({"body": {"background": True}}, "unsupported_parameter", "background has no meaning"),
        ({"body": {"prompt": "x" * 2000}}, "line_too_long", "2000 bytes"),
    ],
)
def test_a_bad_line_says_what_is_wrong(fields: dict[str, Any], code: str, says: str) -> None:
    got = one(**fields)
    assert isinstance(got, BadLine)
    assert (got.number, got.code) == (1, code)
    assert got.message.startswith("Line 1: ") and says in got.message


def test_what_is_no_object_is_an_error_and_the_next_line_goes_on() -> None:
    good = json.dumps(line()).encode()
    got = read(b"\n".join([b"nonsense", b"[1]", b"\xff\xfe", b'{"a":' * 5000, good]))
    assert [type(item) for item in got] == [BadLine] * 4 + [Line]
    assert {item.code for item in got[:4] if isinstance(item, BadLine)} == {"invalid_json_line"}


def test_blank_lines_and_a_byte_order_mark_are_no_lines_but_count_in_the_numbers() -> None:
    text = "\ufeff" + json.dumps(line()) + "\r\n\n   \n" + json.dumps(line(custom_id="b"))
    assert [(item.number, item.custom_id) for item in read(text.encode())] == [(1, "a"), (4, "b")]


def test_a_custom_id_counts_the_first_time() -> None:
    lines = [line(), line(custom_id="b"), line(url="/nope"), line()]
    got = read("\n".join(map(json.dumps, lines)).encode())
    assert [type(item) for item in got] == [Line, Line, BadLine, BadLine]
    assert {item.code for item in got[2:] if isinstance(item, BadLine)} == {"duplicate_custom_id"}
    assert "line 1 has the custom_id 'a' already" in got[3].message  # type: ignore[union-attr]


def test_a_line_of_any_length_is_passed_over_without_being_held() -> None:
    class Counting(io.BytesIO):
        largest = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            data = super().readline(size)
            Counting.largest = max(Counting.largest, len(data))
            return data

    data = json.dumps(line()).encode() + b"\n" + b"x" * 5_000_000 + b"\n" + json.dumps(line(custom_id="b")).encode()
    got = list(raw_lines(Counting(data), 1000))
    assert [(number, body is None) for number, body in got] == [(1, False), (2, True), (3, False)]
    assert Counting.largest <= 1 << 20


@given(st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b)), st.integers(1, 8), st.booleans())
def test_raw_lines_are_those_of_the_file(parts: list[bytes], limit: int, ended: bool) -> None:
    data = b"\n".join(parts) + b"\n" * ended
    expected = [
        (number, part if len(part) <= limit else None)
        for number, part in enumerate(data.split(b"\n"), 1)
        if part.strip() or len(part) > limit
    ]
    got = [
        (number, body if body is None else body.removesuffix(b"\n"))
        for number, body in raw_lines(io.BytesIO(data), limit)
    ]
    if not data.startswith(b"\xef\xbb\xbf"):
        assert got == expected


def test_a_survey_tells_files_apart_that_would_run_differently() -> None:
    files = [b"{}\n", b"{}", b"{}\n{}\n", b"\n{}\n{}\n", b"{ }\n"]
    found = [survey(io.BytesIO(data), RULES) for data in files]
    assert [item.lines for item in found] == [1, 1, 2, 2, 1]
    assert len({item.digest for item in found}) == len(files)


def test_a_batch_has_one_endpoint_and_is_less_urgent() -> None:
    rules = Rules(RULES.endpoints, endpoint="/v1/completions", priority=100)
    assert one(rules).body == b'{"prompt":"Hi","priority":100}'  # type: ignore[union-attr]
    assert one(rules, body={"priority": 7}).body == b'{"priority":107}'  # type: ignore[union-attr]
    assert one(rules, body={"priority": -7}).body == b'{"priority":100}'  # type: ignore[union-attr]
    other = one(rules, url="/v1/chat/completions")
    assert isinstance(other, BadLine) and other.code == "mismatched_endpoint"


def test_answers_of_the_responses_api_are_kept_only_where_somebody_can_ask_for_them() -> None:
    assert one(url="/v1/responses", body={}).body == b'{"store":false}'  # type: ignore[union-attr]
    assert one(url="/v1/responses", body={"store": True}).body == b'{"store":true}'  # type: ignore[union-attr]
    keeping = Rules(RULES.endpoints, keep=True)
    assert one(keeping, url="/v1/responses", body={}).body == b"{}"  # type: ignore[union-attr]


def test_custom_ids_remember_the_first_line_of_each() -> None:
    ids = CustomIds()
    assert [ids.first(name, number) for number, name in enumerate(["a", "b", "a", "\ud800", "\ud800"], 1)] == [
        1,
        2,
        1,
        4,
        4,
    ]
    ids.close()
