"""The flags of an engine: declared once, the same in every command, and each one reaches the engine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.compile import compile_model
from octavo.cli.engine_options import RunningOptions, ShapeOptions, engine_config, with_options
from octavo.cli.serve import serve
from octavo.cli.server_options import with_limits
from octavo.config import EngineConfig
from octavo.errors import ConfigError
from octavo.server.transport.limits import Limits

BY_HAND = {"model", "settings", "num_kv_blocks"}
"""Fields of EngineConfig that no flag sets."""


def _declared(command: object) -> dict[str, typer.models.OptionInfo]:
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]
    return {p.name: p for p in typer.main.get_command(app).params}  # type: ignore[misc, attr-defined]


def test_two_commands_have_the_same_flags_with_the_same_help() -> None:
    serving, compiling = _declared(serve), _declared(compile_model)
    for field in dataclasses.fields(ShapeOptions):
        assert serving[field.name].opts == compiling[field.name].opts
        assert serving[field.name].help == compiling[field.name].help
    for field in dataclasses.fields(RunningOptions):
        assert field.name in serving and field.name not in compiling


def test_every_flag_reaches_the_engine(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages }}")
    shape = ShapeOptions("acme", 100, 7, 64, 32, "float32", "int8", 2, 3)
    running = RunningOptions(
        ["name"], 0.5, False, "priority", tmp_path, True, 20.0, "embed", template, "none", True, 1.0, 4
    )
    limits = Limits(queued_requests=9, queued_tokens=99, grammar_seconds=3.0, grammar_memory=2**29)
    config = with_limits(engine_config("m", shape, running), limits)
    plain = EngineConfig("m")
    same = {
        f.name
        for f in dataclasses.fields(EngineConfig)
        if f.name not in BY_HAND and getattr(config, f.name) == getattr(plain, f.name)
    }
    assert not same
    no_queue = with_limits(engine_config("m", shape, running), Limits(queued_requests=0, queued_tokens=0))
    assert (no_queue.max_waiting, no_queue.max_waiting_tokens) == (None, None)
    assert None not in dataclasses.astuple(config.settings)


def test_a_group_is_spread_and_put_together_again() -> None:
    got = []

    @with_options
    def command(shape: ShapeOptions, count: int = 3) -> None:
        got.append((shape, count))

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["--threads", "2", "--count", "5"]).exit_code == 0
    assert got == [(ShapeOptions(threads=2), 5)]


def test_values_that_cannot_be_name_their_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--scheduling-policy"):
        engine_config("m", ShapeOptions(), RunningOptions(scheduling_policy="lifo"))
    with pytest.raises(ConfigError, match="--chat-template"):
        engine_config("m", ShapeOptions(), RunningOptions(chat_template=tmp_path / "none"))
    with pytest.raises(ConfigError, match="dtype 'int3' is not known"):
        engine_config("m", ShapeOptions(dtype="int3"))
