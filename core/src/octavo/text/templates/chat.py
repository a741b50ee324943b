"""Chat messages to prompt text, by the checkpoint's chat template.

The text is what transformers' `apply_chat_template` makes of the same messages. The template runs in a sandbox, see
`octavo.text.templates.environment` for what that protects from and what it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import Template, TemplateError, TemplateSyntaxError

from octavo.errors import ConfigError, RequestError
from octavo.text.templates.environment import MAX_RENDERED, Refusal, compile_template

Message: TypeAlias = Mapping[str, Any]

RunTemplate: TypeAlias = Callable[[str, Mapping[str, Any]], str]
"""Runs a template's source with its variables, which are JSON values; `run_template`, or elsewhere the same."""

Prepare: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Changes a template's variables just before it runs, as JSON values."""

# What the code of a template may raise besides TemplateError: it adds, indexes and divides whatever the messages hold.
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)

# The names under which clients send a model's reasoning back; templates read the first (gpt-oss's the second).
_REASONING = ("reasoning_content", "thinking", "reasoning")

# Stands behind the final message while it is rendered. Private-use characters, so that no template looks for them; the
# space tells whether the template trims its messages.
_MARK = "\ue000continue here\ue001"
_MARK_AND_SPACE = _MARK + " "

_DEEPEST = 64  # levels of nesting in a message or tool; JSON schemas of real tools have about ten


def render(
    template: str,
    messages: Sequence[Message],
    run: RunTemplate | None = None,
    prepare: Prepare | None = None,
    /,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> str:
    """The prompt text of a conversation.

    ``messages``: mappings with "role" and mostly "content": a string, or a list of ``{"type": "text", "text": …}``
    parts, which are joined by line breaks (as vLLM and llama.cpp do). Keys whose value is None are left out, as
    templates ask ``is defined``; but not the content of a message that has tool calls. ``add_generation_prompt`` adds
    what begins the assistant's turn; ``continue_final_message`` instead leaves the last message open, for the model to
    go on with. ``tools``: function schemas as OpenAI sends them. ``variables`` are visible to the template by name,
    ``bos_token`` above all. ``run``: where the template runs; in this process by default. ``prepare`` has the last word
    on what it is given.

    Raises RequestError: param "messages" if they are malformed, or if the template refuses them, fails on them, or
    makes more than 8 Mi characters of them; "tools" or "chat_template_kwargs" for values that are not JSON.
    """
    if continue_final_message and add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other: the last message goes on, or a new "
            "one begins; set one of them to false",
            param="continue_final_message",
        )
    conversation = [_message(message, at) for at, message in enumerate(_listed(messages))]
    own = {"messages": conversation, "tools": _tools(tools), "add_generation_prompt": add_generation_prompt}
    given: Mapping[str, Any] = {"documents": None, **_plain(variables, "chat_template_kwargs"), **own}
    if prepare is not None:
        given = prepare(given)
    final = ""
    if continue_final_message:
        final, messages = _mark_final(given["messages"])
        given = {**given, "messages": messages}
    text = (run or run_template)(template, given)
    return _cut_at_mark(text, final) if continue_final_message else text


def check_template(template: str) -> None:
    """ConfigError if a template that somebody configured is not valid jinja2."""
    try:
        compile_template(template)
    except TemplateSyntaxError as error:
        raise ConfigError(f"the chat template is not valid: line {error.lineno}: {error.message}") from error


def _compiled(template: str) -> Template:
    try:
        return compile_template(template)
    except TemplateSyntaxError as error:
        raise RequestError(
            f"the model's chat template is not valid (line {error.lineno}: {error.message}); "
            "give another with --chat-template",
            param="messages",
        ) from error


def run_template(source: str, variables: Mapping[str, Any]) -> str:
    """What a template makes of its variables. Raises RequestError where it fails, refuses, or makes too much."""
    template = _compiled(source)
    chunks, size = [], 0
    try:
        for chunk in template.generate(variables):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_RENDERED:
                raise RequestError(
                    f"the chat template makes more than {MAX_RENDERED} characters of the messages; send fewer",
                    param="messages",
                )
    except Refusal as error:
        raise RequestError(f"the chat template refuses the messages: {error}", param="messages") from error
    except _TEMPLATE_FAULTS as error:
        raise RequestError(
            f"the chat template failed on the messages: {type(error).__name__}: {error}", param="messages"
        ) from error
    return "".join(chunks)


def _listed(messages: object) -> Sequence[object]:
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise RequestError(f"messages is {type(messages).__name__}; expected a list of messages", param="messages")
    if not messages:
        raise RequestError("messages is empty; send at least one message", param="messages")
    return messages


def _message(message: object, at: int) -> dict[str, Any]:
    """One message as the template gets it: plain data, no None, content a string, reasoning under every name."""
    where = f"messages[{at}]"
    if not isinstance(message, Mapping):
        raise RequestError(
            f"{where} is {type(message).__name__}; expected an object with role and content", param="messages"
        )
    plain: dict[str, Any] = {key: value for key, value in _plain(message, "messages").items() if value is not None}
    if plain.get("tool_calls") and message.get("content", "") is None:
        plain["content"] = None  # some templates tell a turn of calls from one of words by this alone
    if not isinstance(plain.get("role"), str):
        raise RequestError(f"{where} has no role; expected system, user, assistant or tool", param="messages")
    if plain.get("content") is not None:
        plain["content"] = _content(plain["content"], f"{where}.content")
    reasoning = next((plain[name] for name in _REASONING if name in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(
            f"{where} is {type(content).__name__}; expected a string or a list of parts", param="messages"
        )
    texts = []
    for at, part in enumerate(content):
        text = part
        if isinstance(part, dict):
            if part.get("type") != "text":
                raise RequestError(
                    f"{where}[{at}] has type {part.get('type')!r}; this model takes text parts only", param="messages"
                )
            text = part.get("text")
        if not isinstance(text, str):
            raise RequestError(f"{where}[{at}] has no text; expected {{'type': 'text', 'text': …}}", param="messages")
        texts.append(text)
    return "\n".join(texts)


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    """Plain data; None for no tools at all, because templates ask both ``if tools`` and ``tools is not none``."""
    if not tools:
        return None
    if isinstance(tools, (str, Mapping)) or not all(isinstance(tool, Mapping) for tool in tools):
        raise RequestError("tools must be a list of objects, each a function schema", param="tools")
    plain: list[Any] = _plain(tools, "tools")
    return plain


def _plain(value: Any, param: str, depth: int = 0) -> Any:
    """A copy made of JSON's types alone, so that a template meets no object with methods the sandbox does not know."""
    if depth > _DEEPEST:
        raise RequestError(f"{param} is nested more than {_DEEPEST} levels deep", param=param)
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, param, depth + 1) for key, item in value.items()}
    if isinstance(value, str):  # an enum or another subclass
        return str.__str__(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item, param, depth + 1) for item in value]
    raise RequestError(f"{param} holds a {type(value).__name__}; only JSON values can be in a prompt", param=param)


def _mark_final(conversation: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The content of the last message, and the conversation with a mark at its end."""
    *before, last = conversation
    final = last.get("content")
    if not isinstance(final, str):
        raise RequestError("continue_final_message: the last message has no content to go on with", param="messages")
    return final, [*before, {**last, "content": final + _MARK_AND_SPACE}]


def _cut_at_mark(text: str, final: str) -> str:
    end = text.rfind(_MARK)
    if end < 0 or final.strip() not in text:
        raise RequestError(
            "continue_final_message: the chat template leaves out or rewrites the last message, so that it cannot be "
            "continued",
            param="messages",
        )
    if text.startswith(_MARK_AND_SPACE, end):
        return text[:end]
    return text[:end].rstrip()  # the template trims messages: without the mark it had trimmed the end of this one
