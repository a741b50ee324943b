"""Which exceptions are the candidate's: those that pass through here."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Raised(Exception):
    """The plugin raised. ``stage`` is the member of the contract that was called."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error

    def to_frame(self) -> dict[str, Any]:
        """For the judge: the names of the exception's classes, message, trace, and what an UnsupportedFeature names."""
        return {
            "stage": self.stage,
            "types": [kind.__name__ for kind in type(self.error).__mro__],
            "message": str(self.error),
            "feature": str(getattr(self.error, "feature", "")),
            "trace": "".join(traceback.format_exception(self.error)),
        }


@contextmanager
def candidate(stage: str) -> Iterator[None]:
    """Run a call into the plugin: whatever it raises is its own."""
    try:
        yield
    except Raised:
        raise
    except (Exception, SystemExit) as error:
        raise Raised(stage, error) from error
