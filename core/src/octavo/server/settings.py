"""What an operator may set about the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import ConfigError

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ServerSettings:
    """Limits and habits of the HTTP server. Raises ConfigError for a value that cannot work."""

    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """A larger request body is refused with 413 before it is parsed."""
    max_prompts: int = 1024
    """Prompts in one completions request."""
    max_sequences: int = 2048
    """Prompts times ``n`` in one completions request: what one request may occupy of the engine."""
    access_log: bool = True
    """One line per request on the logger ``octavo.access``."""
    quiet_paths: frozenset[str] = frozenset({"/health"})
    """Paths that probes call every few seconds; they stay out of the access log."""
    ui: bool = True
    """Whether there is a page to talk to the model at ``/``."""
    allowed_hosts: tuple[str, ...] = ()
    """Public names that clients on this machine may call the server by; see `octavo.server.hosts`."""
    drain_seconds: int = 30
    """How long running requests may go on after SIGTERM."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_prompts", "max_sequences"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must be at least 0, not {self.drain_seconds}")
