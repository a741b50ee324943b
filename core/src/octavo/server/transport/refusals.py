"""Refusals that name a field of the request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from octavo.errors import RequestError


def wrong(where: str, what: str, code: str = "invalid_value") -> NoReturn:
    """Refuse a field: ``what`` goes on from its name."""
    raise RequestError(f"'{where}' {what}.", param=where, code=code)


@contextmanager
def naming(fields: Mapping[str, str]) -> Iterator[None]:
    """Errors raised inside name fields as the client has sent them.

    ``fields``: what the layers below call a field, and what it is in this API. ``messages`` that a client has not sent
    have no parts that it knows: their paths are cut. In the message a name is replaced where it is one, in quotes or
    with an underscore; else it is a word.
    """
    try:
        yield
    except RequestError as error:
        for name, sent in fields.items():
            if error.param is not None and re.match(rf"{name}(?![\w])", error.param):
                error.param = sent
            known = rf"\b{name}\b" if "_" in name else f"(?<='){name}(?=')"
            error.args = (re.sub(known, sent, str(error)), *error.args[1:])
        raise
