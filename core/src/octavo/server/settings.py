"""What an operator may set about the HTTP side."""

from __future__ import annotations

from collections.abc import Sequence
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
    quiet_paths: frozenset[str] = frozenset({"/health", "/ping"})
    """Paths that probes call every few seconds; they stay out of the access log."""
    tokenizer_info: bool = False
    """Whether ``/tokenizer_info`` shows the tokenizer's special tokens and the chat template."""
    drain_seconds: int = 30
    """How long running requests may go on after SIGTERM."""
    tool_parser: str = "auto"
    """How the model writes tool calls: a parser's name, "none", or "auto" for what its chat template asks for."""
    reasoning_parser: str = "auto"
    """How the model writes thoughts, likewise."""
    plugged: Sequence[object] = ()
    """What the ``octavo_models`` hook returned; parsers among it are known beside the built-in ones."""
    trust_request_chat_template: bool = False
    """Whether a request may bring a chat template of its own."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_prompts", "max_sequences"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must be at least 0, not {self.drain_seconds}")
