"""The two hooks through which plugins are found. Nothing on the path of a request calls pluggy.

A distribution names a module under the entry point group ``octavo.platforms``; the module implements either hook::

    [project.entry-points."octavo.platforms"]
    acme = "octavo_acme.plugin"
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from octavo.platform.contract import Platform

PROJECT = "octavo"
ENTRY_POINT_GROUP = "octavo.platforms"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def octavo_platforms() -> Iterable[Platform]:  # type: ignore[empty-body]
    """The platforms that this plugin provides. Importing the module and calling this must not touch a device."""


@hookspec
def octavo_models() -> Iterable[Any]:  # type: ignore[empty-body]
    """Model families (`octavo.models.Family`) that this plugin adds to the built-in ones."""
