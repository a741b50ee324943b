"""The tables of files and batches. Times are Unix seconds. Everything has an owner."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from octavo.server.transport.database import METADATA

_ID = String(80)
_OWNER = String(64)
_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up by itself only what it calls INTEGER

FILES = Table(
    "files",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),  # the order of lists
    Column("id", _ID, nullable=False, unique=True),
    Column("owner", _OWNER, nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("filename", String(255), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Index("files_by_owner", "owner", "number"),
    Index("files_by_expiry", "expires_at"),
)

BATCHES = Table(
    "batches",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", _ID, nullable=False, unique=True),
    Column("owner", _OWNER, nullable=False),
    Column("endpoint", String(80), nullable=False),
    Column("input_file_id", _ID, nullable=False),
    Column("completion_window", String(16), nullable=False),
    Column("metadata", Text),  # JSON
    Column("output_seconds", BigInteger),  # how long its files are kept
    Column("status", String(16), nullable=False),
    Column("outcome", String(16)),  # the last status, once no line will run any more; its files may not be there yet
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    *(
        Column(f"{what}_at", BigInteger)
        for what in ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    ),
    Column("output_file_id", _ID),
    Column("error_file_id", _ID),
    Column("total", BigInteger, nullable=False, default=0),
    Column("completed", BigInteger, nullable=False, default=0),
    Column("failed", BigInteger, nullable=False, default=0),
    Column("errors", Text),  # JSON
    Column("usage", Text),  # JSON
    Index("batches_by_owner", "owner", "number"),
    Index("batches_by_status", "status"),
)
