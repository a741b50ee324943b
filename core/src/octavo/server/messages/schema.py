"""Request models of the Anthropic Messages API.

Beside its own fields a body may have those that all generating APIs here share (seed, min_p, priority, …). What only
tunes caching, billing or routing is ignored; what would change the answer and is not built is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from octavo.server.fields import COMPLETION_UNBUILT, Unbuilt, only, undescribed
from octavo.server.schema import SamplingFields

_OF_OPENAI = "It belongs to the OpenAI API."

UNBUILT: Mapping[str, Unbuilt] = {
    **COMPLETION_UNBUILT,
    "n": Unbuilt(only(1), "A message is one answer."),
    "stop": Unbuilt(only([]), "The Messages API calls it stop_sequences."),
    "response_format": Unbuilt(instead="The Messages API calls it output_config.format."),
    "logprobs": Unbuilt(only(False), _OF_OPENAI),
    "container": Unbuilt(instead="Code is not run by this server."),
    "mcp_servers": Unbuilt(only([]), "This server calls no MCP servers; the client can."),
}

_SYSTEM = {
    "title": "System",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
}


class TurnFields(SamplingFields):
    """POST /v1/messages/count_tokens; everything that makes the prompt."""

    model_config = ConfigDict(json_schema_extra=undescribed(UNBUILT))

    messages: list[dict[str, Any]]
    system: Annotated[Any, WithJsonSchema(_SYSTEM)] = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    """The older name of ``output_config.format``."""
    context_management: dict[str, Any] | None = None


class MessagesRequest(TurnFields):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=0)]
    """0 computes the prompt, so that its cache is warm, and generates nothing."""
    stop_sequences: list[str] | None = None
