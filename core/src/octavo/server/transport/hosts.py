"""What web pages elsewhere may not do to a server through their reader's browser.

A page may lead the browser to a server on the same machine under the page's own name, by changing what the name stands
for (DNS rebinding), and would then pass for one of the server's own. Its requests still carry that name.

A page may also send forms across origins. The browser asks first before it sends JSON, and no answer of ours allows it;
for forms, as files are uploaded in, it does not ask. It says where they come from.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

_OURS = (".localhost", ".local", ".internal")
"""Nobody can register a name under these, nor one without a dot."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class HostGuard:
    """Plain ASGI: 403 for a public name that nobody allowed, on connections that came in over loopback, and for what a
    page of another site sends without having asked.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str]) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            name = name_of(headers.get("host", ""))
            local = is_loopback((scope.get("server") or ("",))[0])
            if local and not (harmless(name) or name in self._allowed):
                raise HTTPException(
                    403, f"This server does not answer to the name {name!r}; --allowed-host {name} makes it."
                )
            asked = scope["method"] in _SAFE or headers.get("content-type", "").startswith("application/json")
            if headers.get("sec-fetch-site") == "cross-site" and not asked:
                raise HTTPException(403, "A web page of another site may not send forms to this server.")
        await self._app(scope, receive, send)


def name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def harmless(name: str) -> bool:
    """Whether no stranger can own this name."""
    return "." not in name or name.endswith(_OURS) or _is_address(name)


def is_loopback(address: str) -> bool:
    """Whether an address stands for this machine itself."""
    return _is_address(address) and ipaddress.ip_address(address).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
