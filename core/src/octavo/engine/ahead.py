"""Compiling ahead of time: everything that an engine of a configuration would make, made with no device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo import env
from octavo.config import EngineConfig
from octavo.engine.artifacts import compiled_store
from octavo.engine.startup import LazyWeights, plan_model
from octavo.errors import ConfigError, UnsupportedFeature
from octavo.models import resolve
from octavo.platform import ArtifactKey, BucketSet, Platform, Progress, Rank
from octavo.platform.discovery import discover, select_compiler
from octavo.runner import kv_layout, load_runner


@dataclass(frozen=True)
class Compiled:
    """What `compile_ahead` left in the folder: (key, file, whether it was made now) of each artifact."""

    platform: str
    target: str
    artifacts: tuple[tuple[ArtifactKey, Path, bool], ...]


def compile_ahead(config: EngineConfig, out: Path, target: str | None, progress: Progress) -> Compiled:
    """Make what is missing, stale or unusable in the folder ``out``, for ``target`` or the platform's usual one.

    Raises ConfigError, CheckpointError or PlatformError, each with its cure.
    """
    registry = discover()
    platform = select_compiler(registry.platforms, config.platform or env.platform())
    name = platform.info.name
    target = _target(platform, config, target)
    model, plan = plan_model(config, resolve(config.model), platform, registry)
    store = compiled_store(out)
    device = platform.open(Rank(threads=config.threads, artifacts=store, target=target))
    try:
        layout = kv_layout(model.graph, plan.block_size, plan.kv_cache_dtype)
        buckets = BucketSet(plan.limits.buckets).buckets
        load_runner(device, model.graph, LazyWeights(model), buckets, layout, progress, model.files)
    finally:
        device.close()
    made = tuple((key, file, made) for key, file, made in store.opened if file is not None)
    return Compiled(name, target, made)


def _target(platform: Platform, config: EngineConfig, target: str | None) -> str:
    name, targets = platform.info.name, platform.capabilities().targets
    if not targets:
        raise UnsupportedFeature(
            f"{name}: compiling without a device is not supported: what {name} makes, if anything, it makes on the "
            f"device that serves; start it there once: octavo serve {config.model} --platform {name} --artifacts DIR",
            feature="compiling ahead of time",
        )
    if target is not None and target not in targets:
        raise ConfigError(f"target {target!r} is none of {name}'s; choose {', '.join(targets)} (--target)")
    return target or targets[0]
