"""The app: all routes over one engine."""

from __future__ import annotations

from starlette.applications import Starlette

from octavo.server.apis import served_routes
from octavo.server.generation.backend import Backend
from octavo.server.generation.service import Service
from octavo.server.meta.health import LoadMeter
from octavo.server.transport.errors import install_handlers
from octavo.server.transport.hosts import HostGuard
from octavo.server.transport.middleware import RequestContext
from octavo.server.transport.settings import ServerSettings
from octavo.server.transport.timing import TimedStreams


def create_app(llm: Backend, settings: ServerSettings | None = None) -> Starlette:
    """An ASGI app that serves ``llm``. It neither starts nor closes the engine; ``app.state.service`` is to be closed
    before the engine is.
    """
    settings = settings or ServerSettings()
    service = Service(llm, settings)
    app = Starlette()
    app.router.redirect_slashes = False
    app.state.service = service
    service.app = app
    app.router.routes.extend(served_routes(service))
    install_handlers(app)
    app.add_middleware(TimedStreams, timing=service.timing)
    app.add_middleware(LoadMeter, service=service)
    app.add_middleware(HostGuard, allowed=settings.allowed_hosts)
    app.add_middleware(RequestContext, settings=settings)
    return app
