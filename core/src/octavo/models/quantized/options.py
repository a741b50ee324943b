"""Options of a quantization_config: what they must be, and the refusal of those that cannot be honoured."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from octavo.errors import CheckpointError

_logger = logging.getLogger(__name__)

CURE = "use the original weights or a GGUF file"


class Options:
    """The options of one object in quantization_config, called ``where`` in messages."""

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise CheckpointError(f"quantization_config: {where} is {values!r}; it must be an object")
        self.where = where
        self._values: Mapping[str, Any] = values

    def __contains__(self, name: str) -> bool:
        """Whether the option has a value."""
        return self._values.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """The option's value; ``default`` where it is absent or null."""
        value = self._values.get(name)
        return default if value is None else value

    def one_of(self, name: str, supported: Sequence[Any], default: Any = None) -> Any:
        """The option's value, which must be one of ``supported``."""
        value = self.get(name, default)
        if value not in supported or isinstance(value, bool) != isinstance(supported[0], bool):
            raise self.refusal(name, f"it must be {' or '.join(map(repr, supported))}")
        return value

    def unset(self, *names: str) -> None:
        """Refuse options that change numbers in ways that are not supported, wherever they have a value."""
        for name in names:
            if self._values.get(name):
                raise self.refusal(name, "that is not supported")

    def warn_of_others(self, known: Collection[str]) -> None:
        """Log the options that have a value and are not in ``known``.

        Writers add descriptive options with every release. Options that change the numbers are refused by `unset`;
        what the weights look like is read off their tensors, whose shapes are checked.
        """
        others = sorted(str(name) for name, value in self._values.items() if name not in known and value)
        if others:
            _logger.warning("quantization_config of %s: unknown options are ignored: %s", self.where, ", ".join(others))

    def refusal(self, name: str, reason: str) -> CheckpointError:
        """The error for an option that cannot be honoured."""
        return CheckpointError(
            f"quantization_config of {self.where}: {name} is {self._values.get(name)!r}; {reason}; or {CURE}"
        )
