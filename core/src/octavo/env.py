"""The environment variables that Octavo reads. There are no others."""

from __future__ import annotations

import os

from octavo.errors import ConfigError

LOG_LEVEL = "OCTAVO_LOG_LEVEL"
"""Level of Octavo's own log lines: debug, info, warning (the default) or error."""

PLATFORM = "OCTAVO_PLATFORM"
"""The platform to use where ``--platform`` is not given."""


def log_level() -> str:
    """The level, upper case. Raises ConfigError for another word."""
    level = os.environ.get(LOG_LEVEL, "warning").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise ConfigError(f"{LOG_LEVEL} must be debug, info, warning or error, not {level.lower()!r}")
    return level


def platform() -> str | None:
    """The platform named by the environment, or ``None``."""
    return os.environ.get(PLATFORM) or None
