"""The app: all routes over one engine."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from octavo.server import chat, completions, embeddings, health, models, scores
from octavo.server.backend import Backend
from octavo.server.errors import install_handlers
from octavo.server.middleware import RequestContext
from octavo.server.service import Service
from octavo.server.settings import ServerSettings


def create_app(llm: Backend, settings: ServerSettings | None = None) -> FastAPI:
    """An ASGI app that serves ``llm``. It neither starts nor closes the engine."""
    settings = settings or ServerSettings()
    service = Service(llm, settings)
    # No generated pages: they describe the server to anyone, and load scripts from elsewhere.
    app = FastAPI(title="Octavo", openapi_url=None, redirect_slashes=False)
    for module in (chat, completions):
        app.include_router(module.routes(service), dependencies=[Depends(service.generates)])
    for module in (embeddings, scores, models, health):
        app.include_router(module.routes(service))
    install_handlers(app)
    app.add_middleware(RequestContext, settings=settings)
    return app
