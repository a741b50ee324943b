"""GET /: a page to talk to the model, one static file that loads nothing from anywhere.

What it may do is what the policy beside it says: run its own script, use its own style, call this server. So what a
model writes can neither run nor call out, even where the page's own care (text only, never markup) would fail.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter, Request, Response

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def routes() -> APIRouter:
    """The route of the page."""
    router = APIRouter()
    page = files("octavo.server").joinpath("page.html").read_bytes()
    etag = f'"{hashlib.sha256(page).hexdigest()[:32]}"'
    headers = {
        "content-security-policy": policy(page.decode()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",  # asks each time, so that a page is never older than its server
        "etag": etag,
    }

    @router.api_route("/", methods=["GET", "HEAD"])
    async def show_page(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(page, headers=headers, media_type="text/html; charset=utf-8")

    return router


def policy(page: str) -> str:
    """The Content-Security-Policy of a page whose scripts and styles are all inline: these, by their hashes."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(hashes['script'])}",
            f"style-src {' '.join(hashes['style'])}",
            "connect-src 'self'",
            "img-src data:",  # its icon
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",  # the browser refuses to make markup of a string
        )
    )
