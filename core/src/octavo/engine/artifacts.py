"""Which artifact store an engine uses, and how people are told what it lacks."""

from __future__ import annotations

import shlex
from pathlib import Path

from octavo import env
from octavo.config import EngineConfig, flag, typed
from octavo.errors import ArtifactMissing
from octavo.platform import ArtifactPolicy, ArtifactStore, Platform

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


def compiled_store(folder: Path) -> ArtifactStore:
    """The store that ``octavo compile`` fills, for whoever serves from it."""
    digests = env.cache_folder() / "digests"
    return ArtifactStore(folder, policy=ArtifactPolicy.MAKE, private=False, digests=digests)


def all_missing(
    error: ArtifactMissing, config: EngineConfig, platform: Platform, folder: Path | None
) -> ArtifactMissing:
    """The error, with the command that makes what is missing."""
    name, targets = platform.info.name, platform.capabilities().targets
    words = ["octavo", "compile" if targets else "serve", config.model, "--platform", name]
    words += ["--target", error.device] if error.device in targets[1:] else []
    for setting, value in vars(config.settings).items():
        if value is not None and setting != "memory_utilization":  # which changes no program
            words += [flag(setting), typed(setting, value)]
    words += ["--out" if targets else "--artifacts", str(folder)]
    return ArtifactMissing(
        f"{error}; make what is missing: {shlex.join(words)} (or serve without --require-artifacts)",
        key=error.key,
        device=error.device,
    )
