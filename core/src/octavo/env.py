"""The environment variables that Octavo reads. There are no others."""

from __future__ import annotations

import os
from pathlib import Path

from octavo.errors import ConfigError

LOG_LEVEL = "OCTAVO_LOG_LEVEL"
"""Level of Octavo's own log lines: debug, info, warning (the default) or error."""

PLATFORM = "OCTAVO_PLATFORM"
"""The platform to use where ``--platform`` is not given."""

ARTIFACTS = "OCTAVO_ARTIFACTS"
"""The folder of compiled artifacts where ``--artifacts`` is not given."""

CACHE = "XDG_CACHE_HOME"
"""Where the user's caches are (XDG Base Directory Specification)."""

DATA = "XDG_DATA_HOME"
"""Where programs keep what is the user's own (the same specification)."""


def log_level() -> str:
    """The level, upper case. Raises ConfigError for another word."""
    level = os.environ.get(LOG_LEVEL, "warning").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ConfigError(f"{LOG_LEVEL} must be debug, info, warning or error, not {level.lower()!r}")
    return level


def platform() -> str | None:
    """The platform named by the environment, or ``None``."""
    return os.environ.get(PLATFORM) or None


def artifacts() -> Path | None:
    """The folder of artifacts named by the environment, or ``None``."""
    named = os.environ.get(ARTIFACTS)
    return Path(named) if named else None


def cache_folder() -> Path:
    """``octavo`` in the user's cache folder. A relative one is ignored, as the specification says."""
    named = Path(os.environ.get(CACHE, ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "octavo"


def data_folder() -> Path:
    """``octavo`` in the user's data folder: what is not made again by itself. A relative one is ignored."""
    named = Path(os.environ.get(DATA, ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "octavo"
