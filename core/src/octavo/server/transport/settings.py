"""What an operator may set about the HTTP side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.errors import ConfigError
from octavo.server.transport.database import IN_MEMORY
from octavo.server.transport.limits import Limits


@dataclass(frozen=True)
class ServerSettings:
    """Limits and habits of the HTTP server. Raises ConfigError for a value that cannot work."""

    limits: Limits = field(default_factory=Limits)
    """What clients may ask for."""
    openapi: bool = False
    """Whether ``/openapi.json`` describes the API to anyone who asks."""
    access_log: bool = True
    """One line per request on the logger ``octavo.access``."""
    quiet_paths: frozenset[str] = frozenset({"/health", "/ping"})
    """Paths that probes call every few seconds; they stay out of the access log."""
    tokenizer_info: bool = False
    """Whether ``/tokenizer_info`` shows the tokenizer's special tokens and the chat template."""
    ui: bool = True
    """Whether there is a page to talk to the model at ``/``."""
    allowed_hosts: tuple[str, ...] = ()
    """Public names that clients on this machine may call the server by; see `octavo.server.transport.hosts`."""
    drain_seconds: int = 30
    """How long running requests may go on after SIGTERM."""
    database: str = IN_MEMORY
    """URL of the SQL database of what is kept for clients, as SQLAlchemy writes it. This one lasts as long as the
    server.
    """
    files_dir: Path | None = None
    """Folder of the files that clients upload and that batches bring; belongs to one database. ``None``: a temporary
    one, which lasts as long as the server.
    """
    batch_lines_in_flight: int = 16
    """Lines of batches that run at the same time, of all batches together."""
    batch_priority: int = 0
    """Added to the priority of a batch's lines, where the engine schedules by priority: more is less urgent."""
    responses_max_age: float = 30
    """Days that responses are kept, and conversations since their last change."""
    responses_max_bytes: int = 2**30
    """Bytes of all responses and conversations; where there are more, the oldest go."""
    tool_parser: str = "auto"
    """How the model writes tool calls: a parser's name, "none", or "auto" for what its chat template asks for."""
    reasoning_parser: str = "auto"
    """How the model writes reasoning, likewise."""
    plugged: Sequence[object] = ()
    """What the ``octavo_models`` hook returned; parsers among it are known beside the built-in ones."""
    trust_request_chat_template: bool = False
    """Whether a request may bring a chat template of its own."""

    def __post_init__(self) -> None:
        for name in ("responses_max_bytes", "batch_lines_in_flight"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.responses_max_age > 0:
            raise ConfigError(
                f"responses_max_age must be more than 0 days, not {self.responses_max_age} (--responses-max-age)"
            )
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must be at least 0, not {self.drain_seconds}")
