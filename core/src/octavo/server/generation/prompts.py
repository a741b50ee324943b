"""Request fields to token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from octavo.errors import RequestError
from octavo.server.generation.backend import TextTokenizer
from octavo.server.generation.history import History, unanswered_as_text
from octavo.server.generation.rewriting import first_taken
from octavo.server.generation.schema import CompletionRequest
from octavo.server.transport.cores import unpin
from octavo.text.parsing.parts import Tool
from octavo.text.tokenizer.fim import FillInMiddle, encode_inside

T = TypeVar("T")

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Roles, and what templates call them: "developer" is the newer name of "system", "function" the older of "tool"."""
_REWRITTEN = ("refusal", "tool_calls", "function_call", "tool_call_id")
_TEXT_PARTS = {"text": "text", "refusal": "refusal"}
"""Kinds of content parts that are text, with the key that holds it."""

_TEMPLATE_THREADS = ThreadPoolExecutor(8, thread_name_prefix="octavo-template", initializer=unpin)

INLINE_CHARACTERS = 4096
"""A longer text is tokenised in a thread: at about a million characters a second the event loop would stall
for longer than a decode step takes."""


async def off_loop(characters: int, work: Callable[[], T]) -> T:
    """What ``work`` returns, which goes through so many characters."""
    return work() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(work)


async def _in_template_thread(work: Callable[[], T]) -> T:
    """However short the conversation, nobody knows how long a template takes; other threads must not wait for it."""
    return await asyncio.get_running_loop().run_in_executor(_TEMPLATE_THREADS, work)


async def conversation_prompt(
    messages: Sequence[Mapping[str, Any]], tokenizer: TextTokenizer, **options: Any
) -> list[int]:
    """The token ids of normalised messages; the options of `template_options`. Raises RequestError."""
    plain, named = [dict(message) for message in messages], template_options(**options)
    render, encode = tokenizer.render_chat, tokenizer.apply_chat_template
    return await _in_template_thread(
        lambda: first_taken(plain, lambda shown: encode(shown, **named), lambda shown: render(shown, **named))
    )


async def conversation_text(messages: Sequence[Mapping[str, Any]], tokenizer: TextTokenizer, **options: Any) -> str:
    """The text that `conversation_prompt` makes tokens of."""
    plain, named = [dict(message) for message in messages], template_options(**options)
    render = tokenizer.render_chat
    return await _in_template_thread(
        lambda: first_taken(plain, lambda shown: render(shown, **named), lambda shown: render(shown, **named))
    )


def template_options(
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: Sequence[Tool] = (),
    chat_template: str | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
    assistant_markers: Iterable[str] = (),
) -> dict[str, Any]:
    """How a conversation is rendered, as the tokenizer takes it. ``chat_template`` replaces the model's;
    ``variables`` are the template's own; ``assistant_markers`` are special tokens that answers in the history may have.
    """
    options = {
        **variables,
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
    }
    if tools:
        options["tools"] = [template_tool(tool) for tool in tools]
    if chat_template is not None:
        options["chat_template"] = chat_template
    if assistant_markers:
        options["assistant_markers"] = assistant_markers
    return options


def template_tool(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates know it."""
    described = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": tool.parameters}}


@dataclass(frozen=True)
class Truncation:
    """How a prompt is shortened: to ``tokens`` at most, -1 being what leaves room for the answer; at the end, or
    else at the beginning. Tokens count alike: a BOS goes with the beginning it belongs to.
    """

    tokens: int
    keep_beginning: bool = False

    def of(self, prompt: list[int], max_model_len: int, max_tokens: int | None) -> list[int]:
        """The prompt, shortened. Raises RequestError for a length that no prompt can have."""
        room = self.tokens
        if room == -1:
            reserved = 1 if max_tokens is None else max_tokens
            room = max_model_len - reserved
            if room < 1:
                raise RequestError(
                    f"'max_tokens' {reserved} leaves no room for a prompt: the context has {max_model_len} tokens.",
                    param="max_tokens",
                )
        if not 1 <= room <= max_model_len:
            raise RequestError(
                f"'truncate_prompt_tokens' is {room}; it must be -1, or from 1 to {max_model_len}, the context.",
                param="truncate_prompt_tokens",
                code="invalid_value",
            )
        return prompt[:room] if self.keep_beginning else prompt[-room:]


def truncation(tokens: int | None, side: str | None) -> Truncation | None:
    """What ``truncate_prompt_tokens`` and ``truncation_side`` ask for."""
    return None if tokens is None else Truncation(tokens, keep_beginning=side == "right")


def normalise_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: known roles, content a string, no nulls, calls with their arguments as
    objects, results that answer them.

    Parts are joined by newlines. Further keys (``name``, ``reasoning_content``) are left for the template.
    Raises RequestError naming the message, and the part, at fault.
    """
    if not messages:
        raise RequestError("'messages' is empty; send at least one message.", param="messages", code="invalid_value")
    history = History()
    plain = [_normalise(message, f"messages[{i}]", history) for i, message in enumerate(messages)]
    history.end()
    return unanswered_as_text(plain)


def _normalise(message: dict[str, Any], where: str, history: History) -> dict[str, Any]:
    role = message.get("role")
    if role is None:
        raise RequestError(
            f"Missing required parameter: '{where}.role'.", param=f"{where}.role", code="missing_required_parameter"
        )
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"'{where}.role' is {str(role)[:40]!r}; it must be one of {', '.join(_ROLES)}.",
            param=f"{where}.role",
            code="invalid_value",
        )
    kept = {key: value for key, value in message.items() if value not in (None, []) and key not in _REWRITTEN}
    content = message.get("content")
    if content is None and role == "assistant":
        content = message.get("refusal") or ""
    return {**kept, "role": _ROLES[role], "content": _text(content, f"{where}.content"), **history.read(message, where)}


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


def split_prompts(prompt: Any, field: str = "prompt") -> list[str | list[int]]:
    """The four shapes of ``prompt`` as a list of texts and token lists. Raises RequestError that names ``field``."""

    def _prompt_error(message: str, code: str = "invalid_type") -> RequestError:
        return RequestError(message, param=field, code=code)

    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and type(prompt[0]) is int):
        prompt = [prompt]
    if not isinstance(prompt, list):
        raise _prompt_error(f"'{field}' must be a string, an array of strings, or one or several arrays of token ids.")
    if not prompt:
        raise _prompt_error(f"'{field}' is empty.", "invalid_value")
    for i, one in enumerate(prompt):
        if isinstance(one, list):
            if not all(type(token) is int for token in one):
                raise _prompt_error(f"{field} {i} is an array of which not every element is a token id.")
        elif not isinstance(one, str):
            raise _prompt_error(f"{field} {i} is neither a string nor an array of token ids.")
        if not one:
            raise _prompt_error(f"{field} {i} is empty.", "invalid_value")
    return prompt


async def completion_prompts(body: CompletionRequest, tokenizer: TextTokenizer) -> list[list[int]]:
    """The token ids of each prompt of a completions request; with ``suffix`` they ask to fill the gap before it."""
    prompts = split_prompts(body.prompt)
    special = body.add_special_tokens is not False
    fim = _fim(body, tokenizer) if body.suffix else None

    def plain(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    def encode() -> list[list[int]]:
        ids = [tokenizer.encode(p, add_special_tokens=special) if isinstance(p, str) else p for p in prompts]
        if fim is None:
            return ids
        suffix = encode_inside(plain, body.suffix or "")
        return [fim.prompt(prefix, suffix, tokenizer.bos_token_id) for prefix in ids]

    characters = sum(len(p) for p in prompts if isinstance(p, str)) + len(body.suffix or "")
    return await off_loop(characters, encode)


def _fim(body: CompletionRequest, tokenizer: TextTokenizer) -> FillInMiddle:
    if tokenizer.fim is None:
        raise RequestError(
            "'suffix' needs a model that fills gaps; this one has no fill-in-the-middle tokens.",
            param="suffix",
            code="unsupported_parameter",
        )
    for name in ("echo", "truncate_prompt_tokens"):
        if getattr(body, name):
            raise RequestError(f"'suffix' and '{name}' exclude each other.", param=name, code="invalid_value")
    return tokenizer.fim
