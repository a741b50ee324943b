"""What an operator may set about the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError
from octavo.server.database import IN_MEMORY

DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
FILES_PATH = "/v1/files"

_FORM_BYTES = 64 * 1024
"""What a form has around a file."""


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
    max_file_bytes: int = 200 * 1024 * 1024
    """A larger file is refused with 413."""
    max_stored_bytes: int = 10 * 1024**3
    """All files of one owner together."""
    max_batch_lines: int = 50_000
    """Lines of one batch."""
    max_open_batches: int = 100
    """Batches of one owner that are not finished."""
    batch_lines_in_flight: int = 16
    """Lines of batches that run at the same time, of all batches together."""
    batch_priority: int = 0
    """Added to the priority of a batch's lines, where the engine schedules by priority: more is less urgent."""

    def __post_init__(self) -> None:
        for name in (
            "max_body_bytes",
            "max_prompts",
            "max_sequences",
            "max_file_bytes",
            "max_stored_bytes",
            "max_batch_lines",
            "max_open_batches",
            "batch_lines_in_flight",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must be at least 0, not {self.drain_seconds}")

    def body_limit(self, path: str) -> int:
        """Bytes that the body of a request to ``path`` may have: files are larger than what is held in memory."""
        return self.max_file_bytes + _FORM_BYTES if path == FILES_PATH else self.max_body_bytes
