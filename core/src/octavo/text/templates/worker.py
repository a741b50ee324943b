"""Chat templates in a process of their own, under a limit of time and memory.

A template is a program from whoever made the checkpoint, and its input is from whoever sends the request: together they
may loop for ever or fill the memory. `TemplateWorker.run` is `octavo.text.templates.chat.run_template` without that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from octavo.errors import RequestError, WorkerFailed, WorkerTimeout
from octavo.sandbox import Worker
from octavo.text.templates.chat import RunTemplate, run_template

_logger = logging.getLogger(__name__)

PROCESSES = 2
"""A second conversation does not wait for one that takes long. The other process is started when it is needed."""

_TEXT, _REFUSED = b"t", b"r"


class TemplateWorker:
    """Runs templates, each for ``seconds`` and within ``memory_bytes`` at most. May be used by several threads."""

    def __init__(self, *, seconds: float, memory_bytes: int) -> None:
        self._worker = Worker(
            f"{__name__}:{_child.__name__}", seconds=seconds, memory_bytes=memory_bytes, processes=PROCESSES
        )

    def run(self, source: str, variables: Mapping[str, Any]) -> str:
        """What a template makes of its variables, which are JSON values; blocks.

        Raises RequestError where the template fails, refuses, makes too much, or exceeds a limit.
        """
        try:
            reply = self._worker.call(json.dumps([source, variables]).encode())
        except WorkerTimeout as error:
            raise _refusal(
                f"the chat_template did not finish within {self._worker.seconds:g} s, the limit of this server "
                "(template_seconds); send fewer or shorter messages"
            ) from error
        except WorkerFailed as error:
            _logger.warning("a chat template was not run to its end: %s", error)
            raise _refusal(
                f"the chat_template did not get by with {self._worker.memory_bytes // 2**20} MiB of memory, the limit "
                "of this server (template_memory); send fewer or shorter messages"
            ) from error
        if reply[:1] == _REFUSED:
            message, param, code = json.loads(reply[1:])
            raise RequestError(message, param=param, code=code)
        return reply[1:].decode("utf-8", "surrogatepass")

    def warm(self, source: str) -> None:
        """Start a process and let it compile a template, so that the first request does not wait for that.

        Raises WorkerFailed if no process can be started.
        """
        self._worker.call(json.dumps([source, None]).encode())

    def close(self) -> None:
        """End the processes."""
        self._worker.close()


class Templated(Protocol):
    """What has a chat template: a tokenizer."""

    run_template: RunTemplate

    @property
    def chat_template(self) -> str | None:
        """The template's source."""


@contextmanager
def template_worker(tokenizer: Templated, seconds: float, memory_bytes: int) -> Iterator[None]:
    """Inside, the tokenizer's templates run in processes of their own; the first is warm. Raises WorkerFailed."""
    worker = TemplateWorker(seconds=seconds, memory_bytes=memory_bytes)
    inline = tokenizer.run_template
    try:
        if tokenizer.chat_template is not None:
            worker.warm(tokenizer.chat_template)
        tokenizer.run_template = worker.run
        yield
    finally:
        tokenizer.run_template = inline
        worker.close()


def _refusal(message: str) -> RequestError:
    return RequestError(message, param="messages", code="template_limit")


def _child(payload: bytes) -> bytes:
    """Runs in the other process."""
    source, variables = json.loads(payload)
    try:
        if variables is None:
            run_template(source, {"messages": []})
            return _TEXT
        return _TEXT + run_template(source, variables).encode("utf-8", "surrogatepass")
    except RequestError as error:
        return _REFUSED + json.dumps([str(error), error.param, error.code]).encode()
