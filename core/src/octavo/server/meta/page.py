"""GET /: a page to talk to the model, one static file that loads nothing from anywhere.

What it may do is what the policy beside it says: run its own script, use its own style, call this server. So what a
model writes can neither run nor call out, even where the page's own care (text only, never markup) would fail.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.generation.service import Service
from octavo.server.routing.route import route

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class Page:
    """The page."""

    def __init__(self, _service: Service) -> None:
        self._page = files("octavo.server.meta").joinpath("page.html").read_bytes()
        self._etag = f'"{hashlib.sha256(self._page).hexdigest()[:32]}"'
        self._headers = {
            "content-security-policy": policy(self._page.decode()),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-cache",  # asks each time, so that a page is never older than its server
            "etag": self._etag,
        }

    @route("GET", "/", "A page to talk to the model", head=True, hidden=True)
    async def show_page(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self._etag:
            return Response(status_code=304, headers=self._headers)
        return Response(self._page, headers=self._headers, media_type="text/html; charset=utf-8")


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
