"""Typed access to a config.json: what each key must be, and which keys were read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octavo.errors import CheckpointError

_LARGEST = 2**31 - 1  # ids and positions are int32


class Fields:
    """A config's values by type. A wrong type, a number out of range or a missing key is a CheckpointError that names
    the key. ``read`` has every key that was asked for.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.config, self._defaults = config, defaults
        self.read: set[str] = set()

    def raw(self, name: str) -> Any:
        """The value, or the family's default where the key is absent, or None."""
        self.read.add(name)
        return self.config.get(name, self._defaults.get(name))

    def integer(self, name: str) -> int:
        """A whole number that must be there."""
        value = self.optional_integer(name)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}")
        return value

    def optional_integer(self, name: str) -> int | None:
        """A whole number, or None where the key is absent or null."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be a whole number")
        if abs(value) > _LARGEST:
            raise CheckpointError(f"config.json: {name} is {shown(value)}; it can be {_LARGEST} at most")
        return value

    def positive_integer(self, name: str) -> int | None:
        """A whole number of at least 1, or None where the key is absent or null."""
        value = self.optional_integer(name)
        if value is not None and value < 1:
            raise CheckpointError(f"config.json: {name} is {value}; it must be at least 1, or null")
        return value

    def number(self, name: str) -> float:
        """A finite number that must be there."""
        value = self.optional_number(name)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}")
        return value

    def optional_number(self, name: str) -> float | None:
        """A finite number, or None where the key is absent or null."""
        value = self.raw(name)
        return None if value is None else finite(value, name)

    def positive_number(self, name: str) -> float | None:
        """A finite number above 0, or None where the key is absent or null."""
        value = self.raw(name)
        return None if value is None else positive(value, name)

    def flag(self, name: str) -> bool:
        """true or false; null and an absent key count as false."""
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be true or false")

    def mapping(self, name: str) -> Mapping[str, Any]:
        """The object under ``name``; empty where there is none."""
        return mapping(self.raw(name), name)


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """``value`` as an object; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be an object")
    return value


def finite(value: Any, name: str) -> float:
    """``value`` as a float; CheckpointError unless it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be a finite number")
    return number


def positive(value: Any, name: str) -> float:
    """``value`` as a float; CheckpointError unless it is a finite number above 0."""
    number = finite(value, name)
    if number <= 0:
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be above 0")
    return number


def shown(value: Any) -> str:
    """A value as messages show it: of a long one the beginning. A huge integer has no decimal form in Python."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
