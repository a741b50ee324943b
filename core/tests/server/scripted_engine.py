"""An engine that writes given token ids through a real tokenizer, detokenizer and stop strings."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from server_fake import FakeEngine
from starlette.testclient import TestClient

from octavo.engine.outputs import RequestDelta, RequestState
from octavo.sampling import SamplingParams
from octavo.scheduler.events import TokenEvent
from octavo.server import ServerSettings, create_app
from octavo.step_plan import TokenLogprobs
from octavo.text import Tokenizer


@dataclass
class ScriptedEngine(FakeEngine):
    """Answers with ``script``, which an end-of-sequence token may end."""

    async def _answer(  # type: ignore[override]
        self, prompt: list[int], params: SamplingParams
    ) -> AsyncGenerator[RequestDelta, None]:
        tokenizer: Any = self.tokenizer
        state = RequestState("r", tuple(prompt), params, tokenizer)
        scores = None
        if params.prompt_logprobs is not None:
            scores = tuple(TokenLogprobs(token, -1.0, 1, ()) for token in prompt[1:])
        script = self.script[: len(self.script) if params.max_tokens is None else params.max_tokens]
        if not script:
            delta = state.update(TokenEvent("r", 0, (), None, "length", prompt_logprobs=scores))
            assert delta is not None
            yield delta
        for at, token in enumerate(script):
            reason: Any = None
            if token in tokenizer.eos_token_ids:
                reason = "stop"
            elif at == len(script) - 1:
                reason = "length"
            entries = None if params.logprobs is None else (TokenLogprobs(token, -(at + 1) / 4, 1, ()),)
            delta = state.update(TokenEvent("r", 0, (token,), entries, reason, prompt_logprobs=scores))
            scores = None
            assert delta is not None
            yield delta
            if delta.finished:
                return


class ScriptedServer:
    """The app in this process over a `ScriptedEngine`."""

    def __init__(self, tokenizer: Tokenizer, **settings: Any) -> None:
        self.tokenizer = tokenizer
        self.engine = ScriptedEngine(tokenizer=tokenizer)  # type: ignore[arg-type]
        self.http = TestClient(create_app(self.engine, ServerSettings(**settings)))

    def say(self, *script: str | int) -> None:
        """What the next answers are: texts, and ids of tokens."""
        ids: list[int] = []
        for piece in script:
            ids += [piece] if isinstance(piece, int) else self.tokenizer.encode(piece, add_special_tokens=False)
        self.engine.script = tuple(ids)

    def post(self, path: str, **body: Any) -> Any:
        """The answer, which must be one."""
        reply = self.http.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stream(self, path: str, **body: Any) -> list[Any]:
        """The data of a stream's events."""
        reply = self.http.post(path, json=body | {"stream": True})
        assert reply.status_code == 200, reply.text
        return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
