"""Routes of the Files and Batches APIs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from octavo.server.batch.file_store import DeletedFile, FileList, FileObject
from octavo.server.batch.store import BatchList, BatchObject
from octavo.server.batch.batch_routes import MAX_PAGE, BatchRequest
from octavo.server.batch.file_routes import DEFAULT_SECONDS, MAX_FILES, MIN_SECONDS
from octavo.server.openapi.declared import FORM, Parameter, Route, page


class FileUpload(BaseModel):
    """POST /v1/files, as a form."""

    file: Annotated[bytes, WithJsonSchema({"type": "string", "format": "binary", "minLength": 1})]
    purpose: Literal["batch"]
    anchor: Annotated[Literal["created_at"] | None, Field(alias="expires_after[anchor]")] = None
    seconds: Annotated[int | None, Field(alias="expires_after[seconds]", ge=MIN_SECONDS, le=DEFAULT_SECONDS)] = None


_F = "/v1/files"
_FILE = f"{_F}/{{id}}"
_CONTENT = f"{_FILE}/content"
_B = "/v1/batches"
_BATCH = f"{_B}/{{id}}"
_GONE = (404,)
_FILES = (*page(MAX_FILES), Parameter("purpose", "Only files of this purpose."))
_BATCHES = page(MAX_PAGE, orders=False)
_RANGE = (Parameter("range", "One part of the file, as bytes=FIRST-LAST.", place="header"),)
_CUT = (404, 416)
_BYTES = "application/octet-stream"

ROUTES = (
    Route("POST", _F, "Keep a file", FileUpload, FileObject, body_type=FORM),
    Route("GET", _F, "List the files", reply=FileList, parameters=_FILES),
    Route("GET", _FILE, "Show what is known of a file", reply=FileObject, errors=_GONE),
    Route("GET", _CONTENT, "A file itself", errors=_CUT, parameters=_RANGE, media_type=_BYTES, successes=(200, 206)),
    Route("DELETE", _FILE, "Delete a file", reply=DeletedFile, errors=_GONE),
    Route("POST", _B, "Begin a batch", BatchRequest, BatchObject, errors=(404, 429)),
    Route("GET", _B, "List the batches", reply=BatchList, parameters=_BATCHES),
    Route("GET", _BATCH, "Show a batch", reply=BatchObject, errors=_GONE),
    Route("POST", f"{_BATCH}/cancel", "End a batch", reply=BatchObject, errors=_GONE),
)
