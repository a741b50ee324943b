"""`octavo serve` on a real checkpoint, as a user starts it, and the official clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
from served import octavo_serve


@pytest.fixture(scope="package")
def server(smollm2_gguf: Path) -> Iterator[str]:
    """The base URL of a running server, with /v1; its model is ``smol``."""
    names = ["--served-model-name", "smol", "--served-model-name", "org/smol"]
    with octavo_serve(smollm2_gguf, "--max-model-len", "1024", *names) as url:
        yield url


@pytest.fixture
def client(server: str) -> Iterator[openai.OpenAI]:
    """The synchronous client; it does not retry, so that one call is one request."""
    with openai.OpenAI(base_url=server, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def aclient(server: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The asynchronous client."""
    async with openai.AsyncOpenAI(base_url=server, api_key="none", max_retries=0) as client:
        yield client
