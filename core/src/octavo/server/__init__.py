"""The OpenAI-compatible HTTP server: FastAPI routes over an engine, one module per API.

    body.py       bytes -> JSON -> request model          errors.py      exception -> error object
    fields.py     known fields whose feature is not built  middleware.py  request id, size and time, last resort
    limits.py     what clients may ask, as one policy      body_limits.py of bodies; protocol.py: of connections
    schema.py     request models                           replies.py     response values
    params.py     request -> SamplingParams                prompts.py     request -> token ids
    streams.py    engine streams, merged and cancellable   sse.py         server-sent events
    chat.py  completions.py  messages/  tokenise.py        the routes
    models.py  health.py  sagemaker.py  responses/         the routes
    embeddings.py  scores.py  vectors.py                   and those of models that make vectors
    files.py  batches.py                                   the routes of what batch/ keeps and runs
    page.py + page.html      a page to talk to the model   timing.py    what the server adds to a token
    openapi/      what all of it is, as a document         deadline.py    a request's time
    variables.py  request -> variables of the template     queries.py     query parameters
    hosts.py                 the names it answers to       cores.py       where the event loop runs
    app.py        all of it in one FastAPI app             loop.py        one process that serves it

The engine is seen only through the protocol in ``backend.py``, so every route is tested with a fake.
"""

from octavo.server.app import create_app
from octavo.server.loop import serve
from octavo.server.transport.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve"]
