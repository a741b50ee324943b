"""The flags of what answers requests, each declared once; see `octavo.cli.engine_options`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.config import EngineConfig

if TYPE_CHECKING:
    from octavo.server.transport.limits import Limits
    from octavo.server.transport.settings import ServerSettings


@dataclass(frozen=True)
class ServerOptions:
    """How requests are understood, and what they may ask."""

    tool_parser: Annotated[
        str,
        typer.Option(
            "--tool-parser",
            "--tool-call-parser",
            help="Parser of tool calls: auto, none, or a parser's name.",
        ),
    ] = "auto"
    reasoning_parser: Annotated[str, typer.Option(help="Parser of reasoning: auto, none, or a parser's name.")] = "auto"
    trust_request_chat_template: Annotated[
        bool, typer.Option("--trust-request-chat-template", help="Allow requests to bring their own chat templates.")
    ] = False
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Limit on what clients may ask for, such as n=16 or body_bytes=4MiB; may be repeated. "
            "docs/limits.md lists them.",
        ),
    ] = None

    def limits(self) -> Limits:
        """Raises ConfigError for a limit that is not known, or cannot be."""
        from octavo.server.transport.limits import Limits  # here, so that --help does not wait for the server

        return Limits.parse(self.limit or ())

    def settings(self, limits: Limits, **more: Any) -> ServerSettings:
        """Settings with ``more`` beside the flags. Raises ConfigError, also for a parser that nobody has."""
        from octavo.server.generation.parsers import check_names
        from octavo.server.transport.settings import ServerSettings

        check_names(self.tool_parser, self.reasoning_parser)
        return ServerSettings(
            limits=limits,
            tool_parser=self.tool_parser,
            reasoning_parser=self.reasoning_parser,
            trust_request_chat_template=self.trust_request_chat_template,
            **more,
        )


def with_limits(config: EngineConfig, limits: Limits) -> EngineConfig:
    """The engine's configuration with those of the limits that it keeps itself."""
    return replace(
        config,
        max_waiting=limits.queued_requests or None,
        max_waiting_tokens=limits.queued_tokens or None,
        grammar_seconds=limits.grammar_seconds,
        grammar_memory=limits.grammar_memory,
    )
