"""The Files API: what batches read, and what they bring."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, WithJsonSchema
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from octavo.errors import RequestError
from octavo.server.batch.file_store import DeletedFile, FileList, FileObject, FileStore
from octavo.server.batch.pages import ends
from octavo.server.generation.service import json_response
from octavo.server.routing.route import FORM, Parameter, page_parameters, route
from octavo.server.transport.errors import ClientGone
from octavo.server.transport.owner import owner_of
from octavo.server.transport.queries import number, order

DAYS = 24 * 3600
DEFAULT_SECONDS = 30 * DAYS
"""How long a file is kept where nobody says."""

MIN_SECONDS = 3600
MAX_FILES = 10_000
"""On one page."""


class FileUpload(BaseModel):
    """POST /v1/files, as a form."""

    file: Annotated[bytes, WithJsonSchema({"type": "string", "format": "binary", "minLength": 1})]
    purpose: Literal["batch"]
    anchor: Annotated[Literal["created_at"] | None, Field(alias="expires_after[anchor]")] = None
    seconds: Annotated[int | None, Field(alias="expires_after[seconds]", ge=MIN_SECONDS, le=DEFAULT_SECONDS)] = None


_ONE = "/v1/files/{id}"
_GONE = (404,)
_LIST = (*page_parameters(MAX_FILES), Parameter("purpose", "Only files of this purpose."))
_RANGE = (Parameter("range", "One part of the file, as bytes=FIRST-LAST.", place="header"),)


class FilesApi:
    """The Files API."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    @route("POST", "/v1/files", "Upload a file", body=FileUpload, reply=FileObject, body_type=FORM)
    async def create_file(self, request: Request) -> Response:
        files = self._files
        form = await _form(request)
        try:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise _missing("file")
            _check_purpose(form.get("purpose"))
            seconds = lifetime(form.get("expires_after[anchor]"), form.get("expires_after[seconds]"))
            size = await _size(file)
            kept = await files.add(owner_of(request), _name(file), "batch", file.file, size, seconds or DEFAULT_SECONDS)
        finally:
            await form.close()
        return json_response(kept)

    @route("GET", "/v1/files", "List the files", reply=FileList, parameters=_LIST)
    async def list_files(self, request: Request) -> Response:
        files = self._files
        query = request.query_params
        limit = number(request, "limit", MAX_FILES, 1, MAX_FILES)
        found, more = await files.list(
            owner_of(request), query.get("after"), limit, query.get("purpose"), ascending=order(request) == "asc"
        )
        return json_response(FileList(found, more, *ends(found)))

    @route("GET", _ONE, "Describe a file", reply=FileObject, errors=_GONE)
    async def retrieve_file(self, request: Request, id: str) -> Response:
        return json_response(await self._files.get(owner_of(request), id))

    @route(
        "GET", f"{_ONE}/content", "The content of a file",
        errors=(404, 416), parameters=_RANGE, media_type="application/octet-stream", successes=(200, 206),
    )  # fmt: skip
    async def retrieve_content(self, request: Request, id: str) -> Response:
        file = await self._files.get(owner_of(request), id)
        return _Content(self._files.path(file.id), media_type="application/octet-stream", filename=file.filename)

    @route("DELETE", _ONE, "Delete a file", reply=DeletedFile, errors=_GONE)
    async def delete_file(self, request: Request, id: str) -> Response:
        await self._files.delete(owner_of(request), id)
        return json_response(DeletedFile(id))


def lifetime(anchor: Any, seconds: Any) -> int | None:
    """``expires_after``, of a form or of JSON. Raises RequestError."""
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise RequestError(
            "'expires_after.anchor' must be created_at.", param="expires_after.anchor", code="invalid_value"
        )
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() and len(seconds) < 10:
        seconds = int(seconds)
    if type(seconds) is not int or not MIN_SECONDS <= seconds <= DEFAULT_SECONDS:
        raise RequestError(
            f"'expires_after.seconds' must be a number from {MIN_SECONDS} to {DEFAULT_SECONDS}, "
            f"not {str(seconds)[:40]!r}.",
            param="expires_after.seconds",
            code="invalid_value",
        )
    return seconds


class _Content(FileResponse):
    """A file, or one part of it. What Starlette refuses in plain text becomes an error object."""

    max_ranges = 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file. Raises HTTPException for a range that is none."""

        async def send_no_refusal(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                headers = Headers(raw=message["headers"])
                told = {"content-range": headers["content-range"]} if "content-range" in headers else None
                raise HTTPException(message["status"], f"The range {_range(scope)!r} is not one of this file.", told)
            await send(message)

        await super().__call__(scope, receive, send_no_refusal)


def _range(scope: Scope) -> str:
    return Headers(scope=scope).get("range", "")[:100]


def _missing(name: str) -> RequestError:
    return RequestError(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


async def _form(request: Request) -> FormData:
    """The form of an upload. Its file is on disk where it is large."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "multipart/form-data":
        raise HTTPException(415, f"The content type must be multipart/form-data, not {content_type or 'absent'}.")
    # Unlike JSON, a web page may send a form to a server on localhost without asking it first.
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "Files are not taken from web pages of another origin.")
    try:
        return await request.form(max_files=1, max_fields=16)
    except ClientDisconnect as error:
        raise ClientGone from error


def _name(file: UploadFile) -> str:
    """The last part of the name that the client gave, as far as it can be shown."""
    last = (file.filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[:255] or "upload"


async def _size(file: UploadFile) -> int:
    size = file.size or 0
    if not size:
        raise RequestError("The file is empty.", param="file", code="empty_file")
    await asyncio.to_thread(cast("Any", file.file).seek, 0)
    return size


def _check_purpose(purpose: Any) -> None:
    if purpose is None:
        raise _missing("purpose")
    if purpose != "batch":
        raise RequestError(
            f"'purpose' must be batch, not {str(purpose)[:40]!r}: files are for batches here.",
            param="purpose",
            code="invalid_value",
        )
