"""A cure that a message names exists: every flag in a text of ours is a flag of some command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import octavo
from octavo.cli.main import app
from octavo.config import DTYPES, KV_DTYPES, Settings, dtype_named, flag, typed
from octavo.errors import ConfigError

ROOT = Path(octavo.__file__).parents[3]
SOURCES = [ROOT / "core/src/octavo", *sorted(ROOT.glob("plugins/*/src"))]
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
# Of other programs, which messages tell to use: pip and llama.cpp's tools; and the one every command has.
FOREIGN = {"--force-reinstall", "--no-deps", "--merge", "--help"}


def options(command: Any) -> Iterator[str]:
    """Every option of a command and of those below it, the negations included."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def named(source: Path) -> Iterator[tuple[str, int]]:
    """The flags in a file's texts, docstrings left out, with their lines."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from ((found, node.lineno) for found in _FLAG.findall(node.value))


def test_every_flag_that_a_text_names_exists() -> None:
    known = {*options(typer.main.get_command(app)), *FOREIGN}
    found = {(name, source) for folder in SOURCES for source in folder.rglob("*.py") for name, _ in named(source)}
    assert len(found) > 50
    unknown = sorted(f"{name} in {source.relative_to(ROOT)}" for name, source in found if name not in known)
    assert unknown == []


def test_every_setting_has_the_flag_that_messages_name() -> None:
    known = set(options(typer.main.get_command(app)))
    assert {flag(setting.name) for setting in fields(Settings)} <= known


@pytest.mark.parametrize("setting", ["dtype", "kv_cache_dtype"])
def test_a_type_that_a_message_names_can_be_typed(setting: str) -> None:
    known = {"dtype": DTYPES, "kv_cache_dtype": KV_DTYPES}[setting]
    for own in {value for value in known.values() if value is not None}:
        told = typed(setting, own)
        assert told in ("float32", "bfloat16", "float16", "int8")
        assert dtype_named(told, known, setting) == dtype_named(own, known, setting) == own
    with pytest.raises(
        ConfigError, match=rf"{setting} 'fp8' is not known; choose auto, float32, .* \({flag(setting)}\)"
    ):
        dtype_named("fp8", known, setting)
