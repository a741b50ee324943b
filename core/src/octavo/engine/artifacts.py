"""Which artifact store an engine uses, and how people are told what it lacks."""

from __future__ import annotations

import shlex
from pathlib import Path

from octavo import env
from octavo.config import EngineConfig, flag
from octavo.errors import ArtifactMissing
from octavo.platform import ArtifactPolicy, ArtifactStore

LIMIT = 64 << 30
"""Bytes that the user's own cache may hold: a few large models. A folder that somebody names has no limit."""


def user_store(folder: Path | None = None, policy: ArtifactPolicy = ArtifactPolicy.USE) -> ArtifactStore:
    """The store in ``folder``; else where the environment says; else in the user's cache, which has a limit."""
    named, cache = folder or env.artifacts(), env.cache_folder()
    return ArtifactStore(
        named or cache / "artifacts",
        policy=policy,
        limit=None if named else LIMIT,
        private=named is None,
        digests=cache / "digests",
    )


def engine_store(config: EngineConfig) -> ArtifactStore:
    """The store of a serving engine."""
    return user_store(config.artifacts, ArtifactPolicy.REQUIRE if config.require_artifacts else ArtifactPolicy.USE)


def all_missing(error: ArtifactMissing, config: EngineConfig, platform: str, folder: Path | None) -> ArtifactMissing:
    """The error with the command that makes what is missing."""
    return ArtifactMissing(
        f"{error}; make what is missing: {compile_command(config, platform, folder)} "
        "(or serve without --require-artifacts)"
    )


def compile_command(config: EngineConfig, platform: str, folder: Path | None) -> str:
    """The ``octavo compile`` command for what an engine of this configuration needs."""
    words = ["octavo", "compile", config.model, "--platform", platform]
    for name, value in vars(config.settings).items():
        if value is not None and name != "memory_utilization":  # which changes no program
            words += [flag(name), str(value)]
    return shlex.join([*words, "--out", str(folder)])
