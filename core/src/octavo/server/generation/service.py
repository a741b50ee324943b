"""What all routes share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.sampling import SamplingParams
from octavo.server.generation.backend import Backend
from octavo.server.generation.logprobs import TokenNames
from octavo.server.generation.parsers import Parsers
from octavo.server.generation.schema import SamplingFields
from octavo.server.generation.streams import Job
from octavo.server.transport.database import METADATA, Database
from octavo.server.transport.settings import ServerSettings
from octavo.server.transport.timing import Timing


@dataclass
class Service:
    """The engine, the settings, and what is derived from them once."""

    backend: Backend
    settings: ServerSettings
    names: TokenNames = field(init=False)
    parsers: Parsers = field(init=False)
    app: Starlette = field(init=False)
    """The app that all routes are in, for those that ask others; set when it is made."""
    database: Database = field(init=False)
    """Has the tables of all modules that are imported before the service is made."""
    fingerprint: str = field(init=False)
    """Changes when the served model does."""
    started: int = field(init=False)
    """Unix time."""
    timing: Timing = field(init=False, default_factory=Timing)
    load: int = field(init=False, default=0)
    """Requests being answered."""
    _starters: list[Callable[[], Awaitable[None]]] = field(init=False, default_factory=list)
    _closers: list[Callable[[], Awaitable[None]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.names = TokenNames(self.backend.tokenizer)
        self.parsers = Parsers.chosen(self.backend.tokenizer, self.settings)
        what = f"{'|'.join(self.backend.model_names)}|{self.backend.max_model_len}"
        self.fingerprint = "fp_" + hashlib.sha256(what.encode()).hexdigest()[:10]
        self.started = int(time.time())
        self.database = Database(self.settings.database, METADATA)

    def on_start(self, starter: Callable[[], Awaitable[None]]) -> None:
        """``starter`` is called before the first request of a server that serves for good."""
        self._starters.append(starter)

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """``closer`` is called when no requests are left, while engine and database still work."""
        self._closers.append(closer)

    async def start(self) -> None:
        """Take up what an earlier process has left; called once, on the event loop that serves."""
        for starter in self._starters:
            await starter()

    async def close(self) -> None:
        """End what runs beside the requests, and close the database; called once, before the engine is closed."""
        for closer in reversed(self._closers):
            await closer()
        self.database.close()

    def require_generation(self) -> None:
        """Raise RequestError if the model generates no text."""
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
        return Job(f"{prefix}-{body.request_id or request_id}", prompts, params, body.options)


def json_response(value: Any) -> Response:
    """A reply struct as a 200."""
    return Response(msgspec.json.encode(value), media_type="application/json")
