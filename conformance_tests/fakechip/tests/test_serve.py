"""The server on the chip: right where all goes well, and honest where it does not."""

from __future__ import annotations

import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from chip_server import OCTAVO, Server, Start

PROMPTS = [np.random.default_rng(n).integers(3, 290, n).tolist() for n in (1, 7, 40, 100, 17, 64, 65, 130)]

BAD = 299  # faults wait for this token, which no prompt above has
CURSED = [[5, BAD, 6], [BAD] * 70, [7, 8, BAD]]


def _together(server: Server, prompts: list[list[int]]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(prompts)) as clients:
        return list(clients.map(server.complete, prompts))


def test_many_clients_get_the_text_that_the_reference_gives(checkpoint: Path, serve: Start) -> None:
    texts = []
    for platform in ("reference", "fakechip"):
        server = serve(checkpoint, platform)
        replies = _together(server, PROMPTS)
        assert [r.status_code for r in replies] == [200] * len(PROMPTS), [r.text for r in replies]
        texts.append([r.json()["choices"][0]["text"] for r in replies])
        assert server.health() == 200
        status, errors = server.stop()
        assert (status, errors) == (0, "")
    assert texts[0] == texts[1] and all(texts[0])


def test_a_chip_that_hangs_turns_health_red_and_the_process_can_be_restarted(llama: Path, serve: Start) -> None:
    server = serve(llama, "fakechip", "--step-timeout", "2", chip=f"fault=hang@token:{BAD}")
    replies = _together(server, CURSED)
    assert [r.status_code for r in replies] == [503] * 3
    assert {r.json()["error"]["code"] for r in replies} == {"engine_dead"}
    assert server.health() == 503
    assert server.complete([5]).status_code == 503
    status, errors = server.stop()
    assert status == 0
    assert "has not come back from a step for 2 s (--step-timeout)" in errors and "Traceback" not in errors
    again = serve(llama, "fakechip")
    assert again.complete(PROMPTS[1]).status_code == 200
    assert again.stop()[0] == 0


def test_a_chip_that_is_lost_fails_what_runs_within_seconds(llama: Path, serve: Start) -> None:
    server = serve(llama, "fakechip", chip=f"delay=0.01,fault=lost@token:{BAD}")
    begun = time.monotonic()
    replies = _together(server, CURSED)
    assert time.monotonic() - begun < 5
    assert [r.status_code for r in replies] == [503] * 3
    assert server.health() == 503
    status, errors = server.stop()
    assert status == 0 and "fell off the bus at step" in errors


def test_a_slow_chip_is_not_taken_for_a_dead_one(llama: Path, serve: Start) -> None:
    server = serve(llama, "fakechip", "--step-timeout", "60", chip=f"fault=slow=3@token:{BAD}")
    assert server.complete(CURSED[0]).status_code == 200
    assert server.health() == 200
    assert server.stop() == (0, "")


def test_a_request_that_finds_no_memory_fails_alone(llama: Path, serve: Start) -> None:
    server = serve(llama, "fakechip", chip=f"fault=oom@token:{BAD}")
    replies: list[Any] = _together(server, [CURSED[0], [5, 6, 7]])
    assert [r.status_code for r in replies] == [500, 200], [r.text for r in replies]
    assert server.health() == 200
    status, errors = server.stop()
    assert status == 0 and "DeviceOutOfMemory" in errors


@pytest.mark.parametrize(
    ("chip", "says"),
    [
        ("memory=64k", r"loading the weights needs \d\.\d MiB and \d\.\d MiB of 0\.1 MiB are free"),
        ("fault=lost@open", "the chip fell off the bus at open"),
        ("fault=melt@open", "OCTAVO_FAKECHIP: 'fault=melt@open' cannot be used"),
    ],
)
def test_what_fails_at_the_start_is_one_line_with_sizes(llama: Path, chip: str, says: str) -> None:
    done = subprocess.run(
        [*OCTAVO, "serve", str(llama), "--platform", "fakechip", "--port", "0"],
        env={**os.environ, "OCTAVO_FAKECHIP": chip},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert re.search(says, done.stderr), done.stderr


def test_programs_compiled_where_there_is_no_chip_are_all_that_serving_needs(
    llama: Path, serve: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "programs"
    compiling = [*OCTAVO, "compile", str(llama), "--platform", "fakechip", "--max-model-len", "256"]
    environment = {**os.environ, "OCTAVO_FAKECHIP": "fault=lost@open"}  # so that whoever opens the chip would know
    for made in (r"^(\d+) of \1 artifacts made for fakechip \(fakechip-1\)", r"^0 of [1-9]\d* artifacts made"):
        done = subprocess.run(
            [*compiling, "--out", str(folder)], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        assert re.search(made, done.stdout, re.MULTILINE), done.stdout
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    server = serve(llama, "fakechip", "--artifacts", str(folder), "--require-artifacts")
    assert server.complete(PROMPTS[2]).status_code == 200
    assert server.stop() == (0, "")
    done = subprocess.run(
        [*OCTAVO, "serve", str(llama), "--platform", "fakechip", "--port", "0", "--max-model-len", "512",
         "--artifacts", str(folder), "--require-artifacts"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "octavo compile" in done.stderr and "--max-model-len 512" in done.stderr
