"""The OpenAI-compatible HTTP server: FastAPI routes over an engine, one module per API.

    body.py       bytes -> JSON -> request model          errors.py      exception -> error object
    fields.py     known fields whose feature is not built  middleware.py  request id, body limit, last resort
    schema.py     request models                           replies.py     response values
    params.py     request -> SamplingParams                prompts.py     request -> token ids
    streams.py    engine streams, merged and cancellable   sse.py         server-sent events
    chat.py  completions.py  models.py  health.py          the routes
    embeddings.py  scores.py  vectors.py                     and those of models that make vectors
    app.py        all of it in one FastAPI app             loop.py        one process that serves it

The engine is seen only through the protocol in ``backend.py``, so every route is tested with a fake.
"""

from octavo.server.app import create_app
from octavo.server.loop import serve
from octavo.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve"]
