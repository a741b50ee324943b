"""Compiling ahead of time, and serving from what that made."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts.acme import AcmePlatform, registry
from models.tiny import tiny_checkpoint
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.config import EngineConfig, Settings
from octavo.engine import startup
from octavo.engine.ahead import compile_ahead
from octavo.engine.artifacts import LIMIT, engine_store, user_store
from octavo.errors import ArtifactMissing, ConfigError, PlatformNotFound, UnsupportedFeature
from octavo.platform import ArtifactPolicy

SETTINGS = Settings(max_model_len=200, max_num_seqs=4, max_num_batched_tokens=256, dtype="f32", memory_utilization=0.5)


class NoTokenizer:
    """Nothing here needs text."""

    eos_token_ids = ()

    def absent_ids(self, vocab_size: int) -> list[int]:
        """Ids that are no tokens."""
        return []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint("llama", tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OCTAVO_ARTIFACTS", raising=False)
    monkeypatch.delenv("OCTAVO_PLATFORM", raising=False)
    monkeypatch.setattr(startup, "load_tokenizer", lambda *_, **__: NoTokenizer())


def use(monkeypatch: pytest.MonkeyPatch, platform: AcmePlatform) -> AcmePlatform:
    """The only platform that discovery finds."""
    for module in ("octavo.engine.startup", "octavo.engine.ahead"):
        monkeypatch.setattr(f"{module}.discover", lambda: registry(platform))
    return platform


def quiet(what: str, done: int, total: int) -> None:
    """No progress wanted."""


def config(model: Path, **options: object) -> EngineConfig:
    return replace(EngineConfig(str(model), "acme", SETTINGS, num_kv_blocks=60), **options)  # type: ignore[arg-type]


def serve(model: Path, folder: Path | None, *, require: bool = False) -> None:
    started = startup.start(config(model, artifacts=folder, require_artifacts=require), quiet)
    started.core.close()


# -- ahead of time --------------------------------------------------------------------------------------------------


def test_what_was_compiled_with_no_device_serves_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    away = use(monkeypatch, AcmePlatform(here=False))
    compiled = compile_ahead(config(model), tmp_path / "out", None, quiet)
    assert (compiled.platform, compiled.target) == ("acme", "A1")
    assert [made for _, _, made in compiled.artifacts] == [True] * 3
    assert [key.bucket for key, _, _ in compiled.artifacts] == away.compiled
    here = use(monkeypatch, AcmePlatform())
    serve(model, tmp_path / "out", require=True)
    assert here.compiled == []


def test_compiling_twice_makes_nothing_twice_and_renews_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    for compiler, expected in (("1", 3), ("1", 0), ("2", 3), ("2", 0)):
        platform = use(monkeypatch, AcmePlatform(here=False, compiler=compiler))
        compile_ahead(config(model), tmp_path / "out", None, quiet)
        assert len(platform.compiled) == expected


def test_a_target_is_one_that_the_platform_declares(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    use(monkeypatch, AcmePlatform(here=False))
    compiled = compile_ahead(config(model), tmp_path / "out", "A2", quiet)
    assert {key.device for key, _, _ in compiled.artifacts} == {"A2"}
    with pytest.raises(ConfigError, match=r"target 'A3' is none of acme's; choose A1, A2 \(--target\)"):
        compile_ahead(config(model), tmp_path / "out", "A3", quiet)


def test_a_platform_that_compiles_only_where_it_serves_refuses(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    use(monkeypatch, AcmePlatform(targets=()))
    with pytest.raises(UnsupportedFeature, match=r"acme: compiling without a device is not supported.*octavo serve"):
        compile_ahead(config(model), tmp_path / "out", None, quiet)
    assert not (tmp_path / "out").exists()


def test_without_a_name_only_an_available_platform_is_taken(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    use(monkeypatch, AcmePlatform(here=False))
    with pytest.raises(PlatformNotFound, match="no device"):
        compile_ahead(config(model, platform=None), tmp_path / "out", None, quiet)


# -- serving --------------------------------------------------------------------------------------------------------


def test_what_serving_made_once_it_finds_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    platform = use(monkeypatch, AcmePlatform())
    for _ in range(2):
        serve(model, None)
        assert len(platform.compiled) == 3
    assert (tmp_path / "cache" / "octavo" / "artifacts").is_dir()


def test_all_that_is_missing_is_named_with_a_command_that_makes_it(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    platform = use(monkeypatch, AcmePlatform())
    folder = tmp_path / "a folder"
    with pytest.raises(ArtifactMissing) as caught:
        serve(model, folder, require=True)
    for tokens in (64, 128, 256):
        assert f"program of acme (A1) for {tokens} tokens, 4 rows" in str(caught.value)
    assert platform.compiled == [] and not folder.exists()

    command = str(caught.value).partition("make what is missing: ")[2].partition(" (or")[0]
    program, *words = shlex.split(command)
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (program, done.exit_code) == ("octavo", 0)
    assert "3 of 3 artifacts made for acme (A1)" in done.stdout
    serve(model, folder, require=True)
    assert len(platform.compiled) == 3


def test_artifacts_of_other_settings_do_not_count(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    use(monkeypatch, AcmePlatform())
    other = replace(SETTINGS, max_num_seqs=8)
    compile_ahead(config(model, settings=other), tmp_path / "out", None, quiet)
    with pytest.raises(ArtifactMissing, match="4 rows"):
        serve(model, tmp_path / "out", require=True)


def test_where_nothing_can_be_compiled_ahead_the_command_serves_once(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    use(monkeypatch, AcmePlatform(targets=()))
    with pytest.raises(
        ArtifactMissing, match=rf"octavo serve {model} --platform acme .*--artifacts {tmp_path / 'out'}"
    ):
        serve(model, tmp_path / "out", require=True)


# -- which store ----------------------------------------------------------------------------------------------------


def test_the_folder_is_the_flag_s_else_the_environment_s_else_the_user_s_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = user_store()
    assert (store.folder, store.limit, store.private) == (tmp_path / "cache" / "octavo" / "artifacts", LIMIT, True)
    monkeypatch.setenv("OCTAVO_ARTIFACTS", "/from/environment")
    store = user_store()
    assert (store.folder, store.limit, store.private) == (Path("/from/environment"), None, False)
    assert user_store(Path("/flag")).folder == Path("/flag")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/xdg", "/xdg/octavo/artifacts"),
        ("", "/home/me/.cache/octavo/artifacts"),
        ("a/b", "/home/me/.cache/octavo/artifacts"),
    ],
)
def test_a_relative_cache_folder_is_none(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/me")
    assert user_store().folder == Path(expected)


def test_requiring_artifacts_is_the_store_s_policy() -> None:
    assert engine_store(EngineConfig("m")).policy is ArtifactPolicy.USE
    assert engine_store(EngineConfig("m", require_artifacts=True)).policy is ArtifactPolicy.REQUIRE
