"""A model that thinks and calls tools, in ways that many models have: with `<think>` and `<tool_call>`."""

from __future__ import annotations

import json

from server_fake import FakeEngine, FakeTokenizer

from octavo.server import ServerSettings

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": True,
}


def _first(arguments) -> str:
    """The argument that the tool has, or the text that was written in place of arguments."""
    return arguments if isinstance(arguments, str) else str(arguments["a"])


class ToyTokenizer(FakeTokenizer):
    """Its template writes what a conversation with tools consists of."""

    template = "{{ tools }}<think>"

    def render_chat(self, messages, **kwargs) -> str:
        told = []
        for message in messages:
            reasoning = f"<think>{message['reasoning_content']}</think>" if "reasoning_content" in message else ""
            calls = "".join(
                f"[{call['function']['name']}:{call['id']}:{_first(call['function']['arguments'])}]"
                for call in message.get("tool_calls", [])
            )
            about = f"({message['tool_call_id']})" if "tool_call_id" in message else ""
            told.append(f"{message['role']}{about}:{reasoning}{message['content']}{calls}|")
        tools = "".join(f"tool={tool['function']['name']};" for tool in kwargs.get("tools") or [])
        variables = "".join(f"{key}={kwargs[key]};" for key in ("reasoning_effort", "enable_thinking") if key in kwargs)
        return tools + variables + "".join(told)


def call(name: str, **arguments: int) -> str:
    """How the model writes a call."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def toy_engine() -> FakeEngine:
    """An engine of such a model."""
    return FakeEngine(tokenizer=ToyTokenizer())


TOY_SETTINGS = ServerSettings(tool_parser="hermes", reasoning_parser="think")
