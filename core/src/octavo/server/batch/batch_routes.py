"""The Batches API: files of requests that run when there is room for them."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.server.batch.file_routes import DEFAULT_SECONDS, lifetime
from octavo.server.batch.file_store import ENDED, FileStore, new_id
from octavo.server.batch.inside import endpoints_of
from octavo.server.batch.manager import Batches
from octavo.server.batch.pages import ends
from octavo.server.batch.store import Batch, BatchList, BatchObject, BatchStore, RequestCounts
from octavo.server.generation.schema import Metadata
from octavo.server.generation.service import Service, json_response
from octavo.server.routing.route import page_parameters, route
from octavo.server.transport.body import read_body
from octavo.server.transport.owner import owner_of
from octavo.server.transport.queries import number

_WINDOW = re.compile(r"([1-9]\d{0,2})h")
_LONGEST_WINDOW = 720
MAX_PAGE = 100


class OutputExpiresAfter(BaseModel):
    """How long the files of a batch are kept."""

    model_config = ConfigDict(strict=True)

    anchor: str
    seconds: int


class BatchRequest(BaseModel):
    """POST /v1/batches."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: Metadata | None = None
    output_expires_after: OutputExpiresAfter | None = None


_ONE = "/v1/batches/{id}"
_GONE = (404,)


class BatchesApi:
    """The Batches API."""

    def __init__(self, service: Service, files: FileStore) -> None:
        self._service = service
        self._files = files
        self._store = BatchStore(service.database)
        self._batches = Batches(service, files, self._store)
        service.on_start(self._batches.start)
        service.on_close(self._batches.close)

    @route("POST", "/v1/batches", "Create a batch", body=BatchRequest, reply=BatchObject, errors=(404, 429))
    async def create_batch(self, request: Request) -> Response:
        service, store, batches = self._service, self._store, self._batches
        body = await read_body(request, BatchRequest, {})
        owner = owner_of(request)
        hours = _hours(body.completion_window)
        known = endpoints_of(service.app)
        if body.endpoint not in known:
            raise RequestError(
                f"'endpoint' is {body.endpoint[:80]!r}; batches can ask {', '.join(sorted(known))} here.",
                param="endpoint",
                code="invalid_value",
            )
        expires = body.output_expires_after
        seconds = None if expires is None else lifetime(expires.anchor, expires.seconds)
        file = await self._files.get(owner, body.input_file_id, "input_file_id")
        if file.purpose != "batch":
            raise RequestError(
                f"The file {file.id} has the purpose {file.purpose}, not batch.",
                param="input_file_id",
                code="invalid_value",
            )
        shown = _new(body, hours, batches.now())
        await store.insert(Batch(owner, shown, seconds or DEFAULT_SECONDS, None), service.settings.limits.open_batches)
        batches.begin(shown.id)
        return json_response(shown)

    @route(
        "GET", "/v1/batches", "List the batches",
        reply=BatchList, parameters=page_parameters(MAX_PAGE, orders=False),
    )  # fmt: skip
    async def list_batches(self, request: Request) -> Response:
        query = request.query_params
        limit = number(request, "limit", 20, 1, MAX_PAGE)
        found, more = await self._store.list(owner_of(request), query.get("after"), limit)
        shown = [batch.shown for batch in found]
        return json_response(BatchList(shown, more, *ends(shown)))

    @route("GET", _ONE, "Show a batch", reply=BatchObject, errors=_GONE)
    async def retrieve_batch(self, request: Request, id: str) -> Response:
        return json_response((await self._store.get(owner_of(request), id)).shown)

    @route("POST", f"{_ONE}/cancel", "Cancel a batch", reply=BatchObject, errors=_GONE)
    async def cancel_batch(self, request: Request, id: str) -> Response:
        store, batches = self._store, self._batches
        owner = owner_of(request)
        status = (await store.get(owner, id)).shown.status
        if status in ENDED:
            raise RequestError(f"The batch {id} is {status}; there is nothing to cancel.", code="batch_ended")
        await store.move(id, "cancelling", batches.now(), only_from=("validating", "in_progress"))
        batches.cancelled(id)
        return json_response((await store.get(owner, id)).shown)


def _new(body: BatchRequest, hours: int, now: int) -> BatchObject:
    return BatchObject(
        id=new_id("batch_"),
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        status="validating",
        created_at=now,
        expires_at=now + hours * 3600,
        request_counts=RequestCounts(),
        metadata=body.metadata,
    )


def _hours(window: str) -> int:
    match: Any = _WINDOW.fullmatch(window)
    if match is None or int(match[1]) > _LONGEST_WINDOW:
        raise RequestError(
            f"'completion_window' is a number of hours, 1h to {_LONGEST_WINDOW}h, such as 24h, not {window[:20]!r}.",
            param="completion_window",
            code="invalid_value",
        )
    return int(match[1])
