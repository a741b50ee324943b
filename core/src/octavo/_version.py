"""The version of this distribution."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version of ``octavo``; ``0+source`` when run from a tree that was never installed."""
    try:
        return metadata.version("octavo")
    except metadata.PackageNotFoundError:
        return "0+source"
