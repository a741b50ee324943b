"""What an operator may set about the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import ConfigError
from octavo.server.limits import Limits


@dataclass(frozen=True)
class ServerSettings:
    """Limits and habits of the HTTP server. Raises ConfigError for a value that cannot work."""

    limits: Limits = field(default_factory=Limits)
    """What clients may ask for."""
    openapi: bool = False
    """Whether ``/openapi.json`` describes the API to anyone who asks."""
    access_log: bool = True
    """One line per request on the logger ``octavo.access``."""
    quiet_paths: frozenset[str] = frozenset({"/health"})
    """Paths that probes call every few seconds; they stay out of the access log."""
    drain_seconds: int = 30
    """How long running requests may go on after SIGTERM."""

    def __post_init__(self) -> None:
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must be at least 0, not {self.drain_seconds}")
