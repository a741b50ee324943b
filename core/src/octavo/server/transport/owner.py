"""Whose a stored object is."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

OWNER = "octavo.owner"
"""Key in the ASGI scope of a request that the server makes itself, for somebody whose key it does not have."""


def owner_of(request: Request) -> str:
    """A name for whoever sent the request, from the key it came with; everybody without a key is one owner.

    What one owner has stored, no other sees: for them it does not exist (404). The key itself is not kept.
    """
    if OWNER in request.scope:
        return str(request.scope[OWNER])
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return hashlib.sha256(key.encode()).hexdigest()[:32] if key else ""
