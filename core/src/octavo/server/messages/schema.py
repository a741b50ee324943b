"""Request models of the Anthropic Messages API.

Beside its own fields a body may have those that all generating APIs here share (seed, min_p, priority, …). What only
tunes caching, billing or routing is ignored; all else that is not built, or not known, is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from octavo.server.generation.schema import SamplingFields
from octavo.server.transport.fields import COMPLETION_UNSUPPORTED, UnsupportedField, only, undescribed

_OF_OPENAI = "It belongs to the OpenAI API."

UNSUPPORTED: Mapping[str, UnsupportedField] = {
    **COMPLETION_UNSUPPORTED,
    "n": UnsupportedField(only(1), "A message is one answer."),
    "stop": UnsupportedField(only([]), "The Messages API calls it stop_sequences."),
    "response_format": UnsupportedField(instead="The Messages API calls it output_config.format."),
    "logprobs": UnsupportedField(only(False), _OF_OPENAI),
    "stream_options": UnsupportedField(only({}), f"{_OF_OPENAI} The last events have the usage."),
    "return_token_ids": UnsupportedField(only(False), _OF_OPENAI),
    "return_tokens_as_token_ids": UnsupportedField(only(False), _OF_OPENAI),
    "compaction": UnsupportedField(instead="This server edits no conversations."),
    "container": UnsupportedField(instead="Code is not run by this server."),
    "diagnostics": UnsupportedField(only({})),
    "fallbacks": UnsupportedField(only([]), "One model answers; ask another yourself."),
    "inference_geo": UnsupportedField(only("global"), "The server runs where it was started."),
    "thread": UnsupportedField(instead="This server keeps no threads; send the messages."),
    "mcp_servers": UnsupportedField(only([]), "This server calls no MCP servers; the client can."),
}

_SYSTEM = {
    "title": "System",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
}


class TurnFields(SamplingFields):
    """Everything that makes the prompt. Fields that are not here are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=undescribed(UNSUPPORTED))

    messages: list[dict[str, Any]]
    system: Annotated[Any, WithJsonSchema(_SYSTEM)] = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    """The older name of ``output_config.format``."""
    context_management: dict[str, Any] | None = None
    # What only tunes caching, billing, routing and speed changes no answer, and passes.
    anthropic_beta: list[str] | None = None
    anthropic_version: str | None = None
    betas: list[str] | None = None
    billing_policy: Any = None
    cache_control: dict[str, Any] | None = None
    fallback_credit_token: Any = None
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard", "fast"] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None


class CountRequest(TurnFields):
    """POST /v1/messages/count_tokens: it may be the very body of a message."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: list[str] | None = None


class MessagesRequest(TurnFields):
    """POST /v1/messages."""

    max_tokens: Annotated[int, Field(ge=0)]
    """0 computes the prompt, so that its cache is warm, and generates nothing."""
    stop_sequences: list[str] | None = None
