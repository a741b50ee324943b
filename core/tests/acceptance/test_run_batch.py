"""`octavo run-batch` on a real checkpoint, as a user runs it, and as a machine ends it: in the middle."""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OCTAVO = [sys.executable, "-m", "octavo.cli.main"]
LINES = 80


def _command(model: Path, folder: Path) -> list[str]:
    return [
        *OCTAVO, "run-batch", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--model", str(model),
        "--served-model-name", "smol", "--max-model-len", "256", "--max-num-seqs", "4",
    ]  # fmt: skip


def _input(folder: Path) -> None:
    def line(i: int) -> dict[str, Any]:
        if i % 2:
            body = {"model": "smol", "prompt": f"Number {i} is", "max_tokens": 40, "ignore_eos": True}
            return {"custom_id": f"c{i}", "method": "POST", "url": "/v1/completions", "body": body}
        messages = [{"role": "user", "content": f"Say {i}."}]
        body = {"model": "smol", "messages": messages, "max_tokens": 40, "ignore_eos": True}
        return {"custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}

    (folder / "in.jsonl").write_text("".join(json.dumps(line(i)) + "\n" for i in range(LINES)))


def _results(folder: Path) -> list[dict[str, Any]]:
    path = folder / "out.jsonl"
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in whole]


def _ran(log: Path) -> collections.Counter[str]:
    """How often each line was asked of the engine, by the server's access log."""
    return collections.Counter(re.findall(r" 200 [\d.]+ms (batch_req_\S+)", log.read_text()))


def test_a_run_that_was_killed_goes_on_without_running_a_finished_line_again(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    _input(tmp_path)
    environment = {**os.environ, "OCTAVO_LOG_LEVEL": "info"}
    with (
        (tmp_path / "first.log").open("w") as log,
        subprocess.Popen(_command(smollm2_gguf, tmp_path), stdout=log, stderr=log, env=environment) as process,
    ):
        while len(_results(tmp_path)) < LINES // 3:
            assert process.poll() is None, (tmp_path / "first.log").read_text()
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finished = {result["id"] for result in _results(tmp_path)}
    assert LINES // 3 <= len(finished) < LINES, "it was to be killed in the middle"

    with (tmp_path / "second.log").open("w") as log:
        done = subprocess.run(
            _command(smollm2_gguf, tmp_path),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "second.log").read_text()
    assert f"{LINES} of {LINES} lines were answered" in done.stdout
    results = _results(tmp_path)
    assert sorted(result["custom_id"] for result in results) == sorted(f"c{i}" for i in range(LINES))
    assert {result["response"]["status_code"] for result in results} == {200}
    assert all(result["response"]["body"]["usage"]["completion_tokens"] == 40 for result in results)
    ran = _ran(tmp_path / "second.log")
    assert set(ran) == {result["id"] for result in results} - finished
    assert set(ran.values()) == {1}
    assert not (tmp_path / "out.errors.jsonl").exists()


def test_lines_that_fail_are_told_by_the_exit_code_and_beside_the_answers(smollm2_gguf: Path, tmp_path: Path) -> None:
    good = {"custom_id": "good", "url": "/v1/completions", "body": {"prompt": "Hello", "max_tokens": 2}}
    other = {"custom_id": "other", "url": "/v1/completions", "body": {"prompt": "Hello", "model": "gpt-4o-mini"}}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(good)}\nnonsense\n{json.dumps(other)}\n")
    done = subprocess.run(_command(smollm2_gguf, tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "1 of 3 lines were answered" in done.stdout and "2 failed" in done.stdout
    assert [result["custom_id"] for result in _results(tmp_path)] == ["good"]
    errors = [json.loads(line) for line in (tmp_path / "out.errors.jsonl").read_text().splitlines()]
    assert {(e["custom_id"], e["response"] and e["response"]["status_code"]) for e in errors} == {
        (None, None),
        ("other", 404),
    }
