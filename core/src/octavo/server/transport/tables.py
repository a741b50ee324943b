"""The tables of the server's database. Each module that keeps something declares its own on this."""

from __future__ import annotations

from sqlalchemy import MetaData

METADATA = MetaData()
