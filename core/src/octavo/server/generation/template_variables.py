"""What a request gives the chat template by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import RequestError

_RESERVED = (
    "messages",
    "tools",
    "tokenize",
    "chat_template",
    "add_generation_prompt",
    "continue_final_message",
    "assistant_markers",
)
"""What ``chat_template_kwargs`` may not override."""
THINKING = ("enable_thinking", "thinking")
"""What templates call the switch of their model's thinking."""


def template_variables(given: Mapping[str, Any] | None, effort: str | None = None, **more: Any) -> dict[str, Any]:
    """``chat_template_kwargs``, then what other fields say: ``effort``, which templates know as a word or as a switch
    of one of two names, and ``more``, as far as it is something. Raises RequestError.
    """
    variables = dict(given or {})
    for name in _RESERVED:
        if name in variables:
            raise RequestError(f"'chat_template_kwargs' may not set '{name}'.", param="chat_template_kwargs")
    for name, value in more.items():
        if value:
            variables.setdefault(name, value)
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
    if effort == "none":
        for switch in THINKING:
            variables.setdefault(switch, False)
    return variables
