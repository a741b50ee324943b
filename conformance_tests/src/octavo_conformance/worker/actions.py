"""Small named jobs that need code beside the plugin: checks ask for them with `Target.act`.

A job is a function of the platform and a mapping of arguments; what it returns goes back to the judge as it is, so it
consists of numbers, text, lists, mappings and arrays. Calls into the plugin go through `candidate`. Checks put their
jobs in modules of this package called ``actions_*``, which are imported when the worker starts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from octavo.platform import Platform

Job = Callable[[Platform, Mapping[str, Any]], Any]
_JOBS: dict[str, Job] = {}


def action(name: str) -> Callable[[Job], Job]:
    """Register the decorated function under ``name``."""

    def register(job: Job) -> Job:
        if name in _JOBS:
            raise ValueError(f"there are two actions called {name}")
        _JOBS[name] = job
        return job

    return register


def run(name: str, platform: Platform, arguments: Mapping[str, Any]) -> Any:
    """Do a job. Raises LookupError for an unknown name."""
    if name not in _JOBS:
        raise LookupError(f"there is no action {name}; there are {', '.join(sorted(_JOBS))}")
    return _JOBS[name](platform, arguments)


def load_all() -> None:
    """Import every module that has jobs."""
    package = importlib.import_module("octavo_conformance.worker")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("actions_"):
            importlib.import_module(f"octavo_conformance.worker.{module.name}")
