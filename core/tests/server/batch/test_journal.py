"""What a run keeps on disk, and what a later one makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.server.batch.inside import Reply
from octavo.server.batch.journal import Journal
from octavo.server.batch.lines import BadLine, Line


def _line(number: int) -> Line:
    return Line(number, f"id-{number}", "/v1/completions", b"{}")


def _reply(status: int = 200, body: bytes = b'{"usage":{"prompt_tokens":3,"completion_tokens":2}}') -> Reply:
    return Reply(status, {"x-request-id": "given"}, body)


def _open(folder: Path, run: str = "abc") -> Journal:
    return Journal(folder / "out.jsonl", folder / "err.jsonl", run)


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_an_answer_and_an_error_are_lines_of_the_batch_format(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(1), _reply())
    journal.answer(_line(2), _reply(400, b'{"error":{"message":"no"}}'))
    journal.refuse(BadLine(3, None, "invalid_json_line", "Line 3: nonsense.", None))
    journal.close()
    assert _lines(tmp_path / "out.jsonl") == [
        {
            "id": "batch_req_abc-1",
            "custom_id": "id-1",
            "response": {
                "status_code": 200,
                "request_id": "given",
                "body": {"usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            },
            "error": None,
        }
    ]
    failed, bad = _lines(tmp_path / "err.jsonl")
    assert failed["response"]["status_code"] == 400 and failed["error"] is None
    assert bad["response"] is None
    assert bad["error"] == {"code": "invalid_json_line", "message": "Line 3: nonsense.", "param": None, "line": 3}


def test_without_errors_there_is_no_file_of_errors(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(1), _reply())
    journal.close()
    assert not (tmp_path / "err.jsonl").exists()


def test_a_later_run_knows_what_is_finished_and_how_much_it_was(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(900), _reply())
    journal.answer(_line(2), _reply(500))
    journal.answer(
        _line(4),
        _reply(body=b'{"usage":{"input_tokens":1,"output_tokens":5,"input_tokens_details":{"cached_tokens":1}}}'),
    )
    journal.close()
    again = _open(tmp_path)
    assert [number for number in range(1000) if _line(number) in again] == [2, 4, 900]
    assert (again.answered, again.failed) == (2, 1)
    assert (again.tokens.input, again.tokens.output, again.tokens.cached) == (4, 7, 1)
    again.close()


@given(cut=st.integers(0, 400))
def test_whatever_a_kill_tears_off_is_run_again_and_nothing_else(tmp_path_factory: Any, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    journal = _open(folder)
    for number in (1, 2, 3):
        journal.answer(_line(number), _reply())
    journal.close()
    path = folder / "out.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    whole = path.read_bytes().count(b"\n")
    again = _open(folder)
    assert [_line(number) in again for number in (1, 2, 3)] == [number <= whole for number in (1, 2, 3)]
    again.answer(_line(9), _reply())
    again.close()
    assert [line["id"][-1] for line in _lines(path)] == [*"123"[:whole], "9"]


def test_a_tail_of_zeros_after_a_power_failure_is_cut_off(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(1), _reply())
    journal.close()
    with (tmp_path / "out.jsonl").open("ab") as file:
        file.write(bytes(100))
    again = _open(tmp_path)
    assert _line(1) in again
    again.close()
    assert len(_lines(tmp_path / "out.jsonl")) == 1


def test_a_line_with_zeros_inside_is_run_again_with_all_behind_it(tmp_path: Path) -> None:
    """A power failure may leave a page of zeros before a page that was written."""
    journal = _open(tmp_path)
    for number in (1, 2, 3):
        journal.answer(_line(number), _reply())
    journal.close()
    path = tmp_path / "out.jsonl"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:40] + bytes(len(second) - 60) + second[-20:] + third)
    again = _open(tmp_path)
    assert [number for number in (1, 2, 3) if _line(number) in again] == [1]
    assert again.answered == 1 and path.read_bytes() == first
    again.answer(_line(2), _reply())
    again.close()
    assert [line["id"] for line in _lines(path)] == ["batch_req_abc-1", "batch_req_abc-2"]


def test_a_line_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(1), _reply())
    journal.refuse(BadLine(2, None, "invalid_json_line", "Line 2: nonsense.", None))
    journal.close()
    for name in ("out.jsonl", "err.jsonl"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes() * 2)
    again = _open(tmp_path)
    assert (again.answered, again.failed, again.tokens.input, again.tokens.output) == (1, 1, 3, 2)
    again.close()


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_line_is_whole_where_the_system_takes_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:most]))
    journal = _open(tmp_path)
    for number in (1, 2):
        journal.answer(_line(number), _reply())
    journal.close()
    assert [line["id"] for line in _lines(tmp_path / "out.jsonl")] == ["batch_req_abc-1", "batch_req_abc-2"]


@pytest.mark.parametrize(
    "content",
    [
        b"my thesis",
        b"my thesis\n",
        b"\x89PNG\0\0",
        b'{"id":"batch_req_other-1"}\n',
        b'{"id":"batch_req_abc-x"}\n',
        b"{}\n",
    ],
)
def test_a_file_that_is_not_this_runs_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    for name in ("out.jsonl", "err.jsonl"):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"no output of this input.*--overwrite"):
            _open(tmp_path)
        assert path.read_bytes() == content
        path.unlink()


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    with pytest.raises(ConfigError, match="being written by another run"):
        _open(tmp_path)
    journal.close()
    _open(tmp_path).close()


def test_a_line_stays_a_line_for_every_reader(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    text = "a\u2028b\u2029c\x85d\ne"
    journal.answer(_line(1), _reply(body=json.dumps({"text": text}, ensure_ascii=False, indent=1).encode()))
    journal.close()
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["response"]["body"]["text"] == text


def test_an_answer_that_is_not_json_is_an_error_of_its_line(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(1), _reply(body=b"<html>"))
    journal.answer(_line(2), _reply(body=b'{"usage": []}'))
    journal.close()
    (bad,) = _lines(tmp_path / "err.jsonl")
    assert bad["error"]["code"] == "invalid_answer" and bad["custom_id"] == "id-1"
    assert len(_lines(tmp_path / "out.jsonl")) == 1


async def test_sync_reaches_the_disk_once_for_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = _open(tmp_path)
    journal.answer(_line(3), _reply(400))  # both files are there
    await journal.sync()
    synced: list[int] = []
    monkeypatch.setattr("octavo.server.batch.journal.os.fsync", synced.append)
    await journal.sync()
    assert synced == []
    journal.answer(_line(1), _reply())
    journal.answer(_line(2), _reply(400))
    await journal.sync()
    await journal.sync()
    assert len(synced) == 2
    journal.close()
