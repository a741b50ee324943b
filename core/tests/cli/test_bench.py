"""`octavo bench latency`, as typed, on a real checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from octavo.cli.bench.mixed import measure, percentile
from octavo.cli.main import app
from octavo.errors import ConfigError


def test_latency_compares_what_streams_wait_with_and_without_a_target(smollm2_gguf: Path) -> None:
    options = "--input-len 8 --output-len 4 --rounds 1 --streams 2 --long-prompt 200 --itl-target 30".split()
    result = CliRunner().invoke(app, ["bench", "latency", str(smollm2_gguf), *options], catch_exceptions=False)
    for words in ("time to first token", "2 streams while a prompt of 200 tokens", "no target", "--itl-target 30"):
        assert words in result.output


def test_every_stream_is_watched_until_the_long_prompt_has_its_token(smollm2_gguf: Path) -> None:
    waits = measure(str(smollm2_gguf), 3, 300, 0.001, 2, None, None)
    assert len(waits.first) == 2
    assert len(waits.alone) == 2 * 3 * 64
    assert len(waits.beside) == 2 * 3 * -(-300 // 16), "a target that cannot be held leaves the least chunk"
    assert percentile(waits.beside, 50) <= percentile(waits.beside, 99) <= max(waits.beside) <= max(waits.first)


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([3.0, 1.0, 2.0], p) for p in (0, 50, 99, 100)] == [1.0, 2.0, 3.0, 3.0]


def test_serve_compares_a_server_with_the_engine_alone(smollm2_gguf: Path, tmp_path: Path) -> None:
    options = "--concurrency 2 --num-prompts 4 --input-len 16 --output-len 8".split()
    words = ["bench", "serve", "--compare-engine", str(smollm2_gguf), *options, "--save", str(tmp_path / "figures")]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "of these the server keeps" in result.output
    figures = json.loads((tmp_path / "figures").read_text())
    assert (figures["requests"], figures["output tokens"]) == (4, 32)
    kept = figures["output tokens/s"] / figures["LLM.generate, output tokens/s"]
    assert figures["part that the server keeps"] == kept
    assert 0 < figures["added by the server, p50 ms"] <= figures["added by the server, p99 ms"]


def test_a_comparison_is_of_what_both_can_do(smollm2_gguf: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "serve", "--compare-engine", str(smollm2_gguf), "--api", "chat"])
    assert isinstance(result.exception, ConfigError)
