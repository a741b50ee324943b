"""What all routes share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response

from octavo.sampling import SamplingParams
from octavo.server.backend import Backend
from octavo.server.logprobs import TokenNames
from octavo.server.parsers import Parsers
from octavo.server.schema import SamplingFields
from octavo.server.settings import ServerSettings
from octavo.server.streams import Job


@dataclass
class Service:
    """The engine, the settings, and what is derived from them once."""

    backend: Backend
    settings: ServerSettings
    names: TokenNames = field(init=False)
    parsers: Parsers = field(init=False)
    fingerprint: str = field(init=False)
    """Changes when the served model does."""
    started: int = field(init=False)
    """Unix time."""
    load: int = field(init=False, default=0)
    """Requests being answered."""

    def __post_init__(self) -> None:
        self.names = TokenNames(self.backend.tokenizer)
        self.parsers = Parsers.chosen(self.backend.tokenizer, self.settings)
        what = f"{'|'.join(self.backend.model_names)}|{self.backend.max_model_len}"
        self.fingerprint = "fp_" + hashlib.sha256(what.encode()).hexdigest()[:10]
        self.started = int(time.time())

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
