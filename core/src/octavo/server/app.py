"""The app: all routes over one engine."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from octavo.server import messages, openapi

from octavo.server.batch import batch_routes as batches

from octavo.server.chat.routes import routes as chat

from octavo.server.completions.routes import routes as completions

from octavo.server.pooling import embeddings

from octavo.server.batch import file_routes as files

from octavo.server.meta import health

from octavo.server.meta import models

from octavo.server.meta import page

from octavo.server.meta import sagemaker

from octavo.server.pooling import scores

from octavo.server.transport import timing

from octavo.server.meta import tokenise
from octavo.server.generation.backend import Backend
from octavo.server.transport.errors import install_handlers
from octavo.server.transport.hosts import HostGuard
from octavo.server.transport.middleware import RequestContext
from octavo.server.responses import routes as responses
from octavo.server.generation.service import Service
from octavo.server.transport.settings import ServerSettings


def create_app(llm: Backend, settings: ServerSettings | None = None) -> FastAPI:
    """An ASGI app that serves ``llm``. It neither starts nor closes the engine; ``app.state.service`` is to be closed
    before the engine is.
    """
    settings = settings or ServerSettings()
    service = Service(llm, settings)
    # No generated pages: they load scripts from elsewhere. FastAPI's document would not know the bodies.
    app = FastAPI(title="Octavo", openapi_url=None, redirect_slashes=False)
    app.state.service = service
    service.app = app
    for module in (chat, completions, responses, messages):
        app.include_router(module.routes(service), dependencies=[Depends(service.generates)])
    for module in (embeddings, scores, tokenise, files, batches, models, health, sagemaker):
        app.include_router(module.routes(service))
    if settings.openapi:
        app.include_router(openapi.routes())
    if settings.ui:
        app.include_router(page.routes())
    timer = timing.Timing()
    app.include_router(timing.routes(timer))
    install_handlers(app)
    app.add_middleware(timing.TimedStreams, timing=timer)
    app.add_middleware(health.LoadMeter, service=service)
    app.add_middleware(HostGuard, allowed=settings.allowed_hosts)
    app.add_middleware(RequestContext, settings=settings)
    return app
