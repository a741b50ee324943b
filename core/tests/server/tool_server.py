"""The app in this process, over the fake engine, whose model has a chat template of some kind."""

from __future__ import annotations

from typing import Any

import openai
from server_fake import FakeEngine
from starlette.testclient import TestClient

from octavo.server import ServerSettings, create_app

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
USER = [{"role": "user", "content": "Hi"}]

HERMES = "{{ tools }}<tool_call>"
MISTRAL = "{{ tools }}[TOOL_CALLS]"
THINKER = "{{ tools }}<think></think><tool_call>"


class ToolServer:
    """One app; ``say`` sets the text of the next answers, a character a token."""

    def __init__(self, template: str | None = HERMES, **settings: Any) -> None:
        self.engine = FakeEngine()
        self.engine.tokenizer.template = template
        self.http = TestClient(create_app(self.engine, ServerSettings(**settings)))
        self.client = openai.OpenAI(
            base_url="http://testserver/v1", api_key="none", max_retries=0, http_client=self.http
        )

    def say(self, text: str) -> None:
        self.engine.script = tuple(text.encode("ascii"))

    def chat(self, **fields: Any) -> Any:
        """The answer to a chat request, which must be one."""
        reply = self.http.post("/v1/chat/completions", json={"messages": USER} | fields)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def refusal(self, **fields: Any) -> dict[str, Any]:
        """The error of a chat request, which must be a 400."""
        reply = self.http.post("/v1/chat/completions", json={"messages": USER} | fields)
        assert reply.status_code == 400, reply.text
        assert not self.engine.seen
        error: dict[str, Any] = reply.json()["error"]
        return error

    @property
    def prompt(self) -> str:
        """The text of the last prompt."""
        return self.engine.seen[-1].text
