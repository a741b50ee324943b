"""The HTTP server: the OpenAI and Anthropic APIs, and a few more, over one engine.

Rooms, from the bottom up; a room imports only from those below it, and the APIs do not see each other (import-linter
holds both):

    transport/    HTTP itself: connections, limits, bodies, errors, server-sent events, settings; knows no API
    routing/      routes, declared once at their handlers, and the OpenAPI document that is made from them
    generation/   what the generating APIs share: requests to turns, turns to answers
    chat/  completions/  responses/  messages/  pooling/  batch/  meta/    the APIs
    apis.py       all of them                app.py    the ASGI app
    loop.py       one process that serves it

To add a route, write a handler in an API's class under `octavo.server.routing.route.route`; a new class goes into
`octavo.server.apis`. The engine is seen only through the protocol in ``generation/backend.py``, so every route is
tested with a fake.
"""

from octavo.server.app import create_app
from octavo.server.loop import serve
from octavo.server.transport.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve"]
