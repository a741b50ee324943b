"""`octavo serve`, as typed: which word is the model, and what becomes of flags that are not built."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.cli.engine_options import describe
from octavo.cli.main import app
from octavo.config import ALREADY_SO, UNSUPPORTED, flag
from octavo.errors import CheckpointError, ConfigError


def _serve(*words: str) -> None:
    CliRunner().invoke(app, ["serve", *words, "--port", "0"], catch_exceptions=False)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_a_flag_that_is_not_built_is_refused_wherever_it_stands(name: str, tmp_path: Path) -> None:
    given = f"{flag(name)}=4"
    for words in ((given, str(tmp_path)), (str(tmp_path), given), (str(tmp_path), flag(name), "4")):
        if name in ALREADY_SO and given not in words:
            continue  # without a value it asks for what is so anyway
        with pytest.raises(ConfigError, match=f"{flag(name)} is not supported: "):
            _serve(*words)


@pytest.mark.parametrize("flags", [["--enforce-eager"], ["--enable-chunked-prefill", "--disable-log-stats"]])
def test_a_flag_that_asks_for_what_is_so_anyway_passes(flags: list[str], tmp_path: Path) -> None:
    for words in ((*flags, str(tmp_path)), (str(tmp_path), *flags)):
        with pytest.raises(CheckpointError, match=r"no config\.json"):  # it got as far as the model
            _serve(*words)


@pytest.mark.parametrize("words", [["--bananas", "m"], ["m", "--bananas"], ["m", "--bananas=3"]])
def test_a_flag_that_nobody_knows_is_named(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="no option --bananas"):
        _serve(*words)


def test_a_limit_that_cannot_be_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no limit 'bananas'.*--limit NAME=VALUE"):
        _serve("m", "--limit", "bananas=3")
    with pytest.raises(ConfigError, match="the limit n must be at least 1"):
        _serve("m", "--limit", "body_bytes=1MiB", "--limit", "n=0")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--tool-parser", "mine"], r"no tool parser 'mine'; choose auto, none, .*hermes.* \(--tool-parser\)"),
        (["--tool-call-parser", "mine"], "no tool parser 'mine'"),
        (
            ["--reasoning-parser", "mine"],
            r"no reasoning parser 'mine'; choose auto, none, think.* \(--reasoning-parser\)",
        ),
    ],
)
def test_a_parser_that_nobody_knows_is_named_before_the_model_is_loaded(
    words: list[str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        _serve(*words, str(tmp_path))


def test_parsers_are_known_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        _serve(
            "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "think", str(tmp_path)
        )


def test_one_model_is_served() -> None:
    with pytest.raises(ConfigError, match="serve takes one MODEL; what is 'b'"):
        _serve("a", "b")
    with pytest.raises(ConfigError, match="serve needs a MODEL"):
        _serve("--enforce-eager")


def test_the_start_is_told_in_one_line() -> None:
    assert describe("acme", 512, 8, 65, 16) == (
        "Running on acme: up to 8 sequences of up to 512 tokens, a KV cache of 64 blocks of 16 tokens"
    )
