"""Keeps transformers from printing advice that is none of our user's business, while Octavo calls it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Errors only from the logger "transformers" and those below it, for the duration; then as it was.

    Two steps, because the first import of transformers sets the level of its logger after it was set here: the filter
    drops what the import itself logs ("PyTorch was not found…"), the level drops what its modules log later.
    """
    logger = logging.getLogger("transformers")
    logger.addFilter(_errors_only)
    try:
        import transformers  # noqa: F401

        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
    finally:
        logger.removeFilter(_errors_only)


def _errors_only(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
