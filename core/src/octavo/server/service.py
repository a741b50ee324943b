"""What all routes share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.sampling import SamplingParams
from octavo.server.backend import Backend
from octavo.server.logprobs import TokenNames
from octavo.server.schema import SamplingFields
from octavo.server.settings import ServerSettings
from octavo.server.streams import Job


@dataclass
class Service:
    """The engine, the settings, and what is derived from them once."""

    backend: Backend
    settings: ServerSettings
    names: TokenNames = field(init=False)
    fingerprint: str = field(init=False)
    """Changes when the served model does."""
    started: int = field(init=False)
    """Unix time."""

    def __post_init__(self) -> None:
        self.names = TokenNames(self.backend.tokenizer)
        what = f"{'|'.join(self.backend.model_names)}|{self.backend.max_model_len}"
        self.fingerprint = "fp_" + hashlib.sha256(what.encode()).hexdigest()[:10]
        self.started = int(time.time())

    async def generates(self) -> None:  # async, lest FastAPI call it in another thread
        """Raise RequestError if the model generates no text: what the routes that need one depend on."""
        self.require("generate", "makes no text: ask /v1/embeddings, /v1/score or /v1/rerank")

    def require(self, task: str, instead: str) -> None:
        """Raise RequestError, which ends in ``instead``, unless the model does ``task``."""
        if task not in self.backend.tasks:
            name = self.backend.model_names[0]
            raise RequestError(f"The model {name} {instead}.", param="model", code="unsupported_task")

    def job(
        self,
        prefix: str,
        body: SamplingFields,
        request_id: str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
    ) -> Job:
        """What a request asks of the engine. The body's id goes before the header's."""
        return Job(
            f"{prefix}-{body.request_id or request_id}", prompts, params, body.priority or 0, body.cache_salt or ""
        )


def json_response(value: Any) -> Response:
    """A reply struct as a 200."""
    return Response(msgspec.json.encode(value), media_type="application/json")
