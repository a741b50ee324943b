"""A model that thinks and calls tools, in a way that can be read at a glance: `<thoughts>words[name {"a": 1}]`."""

from __future__ import annotations

import itertools
import re

from server_fake import FakeEngine, FakeTokenizer

from octavo.server import ServerSettings
from octavo.text.parts import CallArguments, CallBegins, Part, Thoughts, Words
from octavo.text.reasoning import ReasoningParser
from octavo.text.tools import ToolParser

_ids = itertools.count()


class ToyThoughts:
    """Thoughts stand between < and >."""

    def __init__(self, inside: bool) -> None:
        self.thinking = inside

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for run in re.findall(r"[<>]|[^<>]+", text):
            if run in "<>":
                self.thinking = run == "<"
            else:
                parts.append(Thoughts(run) if self.thinking else Words(run))
        return parts

    def finish(self) -> list[Part]:
        return []


class ToyCalls:
    """A call is [name arguments]."""

    def __init__(self) -> None:
        self.count = 0
        self.name: str | None = None
        self.inside = False

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for run in re.findall(r"[\[\] ]|[^\[\] ]+", text):
            parts += self._run(run)
        return parts

    def _run(self, run: str) -> list[Part]:
        if run == "[":
            self.name, self.inside = "", False
        elif self.name is None:
            return [Words(run)]
        elif run == "]":
            self.name = None
            self.count += 1
        elif self.inside:
            return [CallArguments(self.count, run)]
        elif run == " ":
            self.inside = True
            return [CallBegins(self.count, f"call_{next(_ids)}", self.name)]
        else:
            self.name += run
        return []

    def finish(self) -> list[Part]:
        return []


TOY_TOOLS = ToolParser("toy", open=lambda tools: ToyCalls(), claims=lambda template: False)
TOY_THOUGHTS = ReasoningParser("toy", open=ToyThoughts, inside=lambda end: False, claims=lambda template: False)

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": True,
}


class ToyTokenizer(FakeTokenizer):
    """Its template writes what a conversation with tools consists of."""

    def apply_chat_template(self, messages, **kwargs) -> list[int]:
        told = []
        for message in messages:
            thoughts = f"<{message['reasoning_content']}>" if "reasoning_content" in message else ""
            calls = "".join(
                f"[{call['function']['name']}:{call['id']}:{call['function']['arguments']}]"
                for call in message.get("tool_calls", [])
            )
            about = f"({message['tool_call_id']})" if "tool_call_id" in message else ""
            told.append(f"{message['role']}{about}:{thoughts}{message['content']}{calls}|")
        tools = "".join(f"tool={tool['function']['name']};" for tool in kwargs.get("tools") or [])
        variables = "".join(f"{key}={kwargs[key]};" for key in ("reasoning_effort", "enable_thinking") if key in kwargs)
        return self.encode(tools + variables + "".join(told))


def toy_engine(answer: str = "Hello") -> FakeEngine:
    """An engine that answers this, a character a token."""
    return FakeEngine(tokenizer=ToyTokenizer(), script=tuple(answer.encode("ascii")))


def toy_settings(**settings) -> ServerSettings:
    return ServerSettings(plugged=(TOY_TOOLS, TOY_THOUGHTS), tool_parser="toy", reasoning_parser="toy", **settings)
