"""The two hooks through which plugins are found. Nothing on the path of a request calls pluggy.

A distribution names a module under the entry point group ``octavo.platforms``; the module implements either hook::

    [project.entry-points."octavo.platforms"]
    acme = "octavo_acme.plugin"

Each hook is called once per start-up, after the module was imported. What the import or a hook raises becomes the
plugin's verdict in ``octavo platforms``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from octavo.platform.contract import Platform

__all__ = ["ENTRY_POINT_GROUP", "hookimpl", "octavo_models", "octavo_platforms"]

PROJECT = "octavo"
ENTRY_POINT_GROUP = "octavo.platforms"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def octavo_platforms() -> Iterable[Platform]:  # type: ignore[empty-body]
    """The platforms that this plugin provides. Importing the module and calling this must not touch a device."""


@hookspec
def octavo_models() -> Iterable[Any]:  # type: ignore[empty-body]
    """What this plugin adds to the built-in knowledge of models, each known by its type: families
    (`octavo.models.Family`), ways of writing tool calls (`octavo.text.parsing.tools.ToolParser`) and reasoning
    (`octavo.text.parsing.reasoning.ReasoningParser`).

    A plugin of models, unlike one of platforms, imports `octavo.models` and `octavo.text` as well.
    """
