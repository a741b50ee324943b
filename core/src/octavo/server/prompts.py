"""Request fields to token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from octavo.errors import RequestError
from octavo.server.backend import TextTokenizer
from octavo.server.schema import ChatCompletionRequest, CompletionRequest

T = TypeVar("T")

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles that can be answered. "developer" is the newer name of "system", which is what templates know."""
_TOOL_ROLES = ("tool", "function")
_TEXT_PARTS = {"text": "text", "refusal": "refusal"}
"""Kinds of content parts that are text, with the key that holds it."""
_RESERVED = ("messages", "tools", "tokenize", "chat_template", "add_generation_prompt", "continue_final_message")
"""What ``chat_template_kwargs`` may not override."""

INLINE_CHARACTERS = 4096
"""A longer text is tokenised in a thread: at about a million characters a second the event loop would stall
for longer than a decode step takes."""


async def _off_loop(characters: int, work: Callable[[], T]) -> T:
    return work() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(work)


async def chat_prompt(body: ChatCompletionRequest, tokenizer: TextTokenizer) -> list[int]:
    """The token ids of a conversation, as the model's chat template writes it."""
    extra = body.chat_template_kwargs or {}
    for name in _RESERVED:
        if name in extra:
            raise RequestError(f"'chat_template_kwargs' may not set '{name}'.", param="chat_template_kwargs")
    goes_on = bool(body.continue_final_message)
    if goes_on and body.add_generation_prompt:
        raise RequestError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other.", param="continue_final_message"
        )
    add_prompt = not goes_on if body.add_generation_prompt is None else body.add_generation_prompt
    return await conversation_prompt(
        normalise_messages(body.messages),
        tokenizer,
        add_generation_prompt=add_prompt,
        continue_final_message=goes_on,
        variables=extra,
    )


async def conversation_prompt(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: TextTokenizer,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """The token ids of normalised messages. ``variables`` are the template's own. Raises RequestError."""
    plain = [dict(message) for message in messages]
    return await _off_loop(
        sum(len(message["content"]) for message in plain),
        lambda: tokenizer.apply_chat_template(
            plain,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **variables,
        ),
    )


def normalise_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: known roles, content a string, no nulls.

    Parts are joined by newlines. Further keys (``name``, ``reasoning_content``) are left for the template.
    Raises RequestError naming the message, and the part, at fault.
    """
    if not messages:
        raise RequestError("'messages' is empty; send at least one message.", param="messages", code="invalid_value")
    return [_normalise(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _normalise(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role is None:
        raise RequestError(
            f"Missing required parameter: '{where}.role'.", param=f"{where}.role", code="missing_required_parameter"
        )
    if role in _TOOL_ROLES or message.get("tool_calls") or message.get("function_call"):
        field = f"{where}.role" if role in _TOOL_ROLES else f"{where}.tool_calls"
        raise RequestError(
            f"'{field}': tool calls are not supported by this server yet.", param=field, code="unsupported_parameter"
        )
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"'{where}.role' is {str(role)[:40]!r}; it must be one of {', '.join(_ROLES)}.",
            param=f"{where}.role",
            code="invalid_value",
        )
    kept = {key: value for key, value in message.items() if value not in (None, []) and key != "refusal"}
    content = message.get("content")
    if content is None and role == "assistant":
        content = message.get("refusal") or ""
    return {**kept, "role": _ROLES[role], "content": _text(content, f"{where}.content")}


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise RequestError(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    if not isinstance(content, list):
        raise RequestError(f"'{where}' must be a string or an array of parts.", param=where, code="invalid_type")
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise RequestError(f"'{where}' must be an object with a 'type'.", param=where, code="invalid_type")
    if kind not in _TEXT_PARTS:
        raise RequestError(
            f"'{where}' has the type {kind[:40]!r}, which is not supported; this server takes text only.",
            param=f"{where}.type",
            code="unsupported_content_type",
        )
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        field = f"{where}.{_TEXT_PARTS[kind]}"
        raise RequestError(f"'{field}' must be a string.", param=field, code="invalid_type")
    return text


def split_prompts(prompt: Any, limit: int, field: str = "prompt") -> list[str | list[int]]:
    """The four shapes of ``prompt`` as a list of texts and token lists. Raises RequestError that names ``field``."""

    def _prompt_error(message: str, code: str = "invalid_type") -> RequestError:
        return RequestError(message, param=field, code=code)

    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and type(prompt[0]) is int):
        prompt = [prompt]
    if not isinstance(prompt, list):
        raise _prompt_error(f"'{field}' must be a string, an array of strings, or one or several arrays of token ids.")
    if not prompt:
        raise _prompt_error(f"'{field}' is empty.", "invalid_value")
    if len(prompt) > limit:
        raise _prompt_error(f"'{field}' holds {len(prompt)} prompts; at most {limit} are allowed.", "invalid_value")
    for i, one in enumerate(prompt):
        if isinstance(one, list):
            if not all(type(token) is int for token in one):
                raise _prompt_error(f"{field} {i} is an array of which not every element is a token id.")
        elif not isinstance(one, str):
            raise _prompt_error(f"{field} {i} is neither a string nor an array of token ids.")
        if not one:
            raise _prompt_error(f"{field} {i} is empty.", "invalid_value")
    return prompt


async def completion_prompts(body: CompletionRequest, tokenizer: TextTokenizer, limit: int) -> list[list[int]]:
    """The token ids of each prompt of a completions request."""
    prompts = split_prompts(body.prompt, limit)
    special = body.add_special_tokens is not False

    def encode() -> list[list[int]]:
        return [tokenizer.encode(p, add_special_tokens=special) if isinstance(p, str) else p for p in prompts]

    return await _off_loop(sum(len(p) for p in prompts if isinstance(p, str)), encode)
