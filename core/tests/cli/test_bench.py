"""`octavo bench latency`, as typed, on a real checkpoint."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from octavo.cli.bench.mixed import measure, percentile
from octavo.cli.main import app


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
