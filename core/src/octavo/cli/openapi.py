"""``octavo openapi``: what the server's API is, for generators of clients and for tests."""

from __future__ import annotations

import json

import typer


def openapi() -> None:
    """Print the OpenAPI document of the server."""
    from octavo.server.apis import openapi_document

    typer.echo(json.dumps(openapi_document(), indent=2))
