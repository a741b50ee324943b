"""Kinds of parsers: each has a name, and knows the chat templates of its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from octavo.errors import ConfigError


class Kind(Protocol):
    """What a registry of parsers needs of one."""

    @property
    def name(self) -> str:
        """What it is chosen by."""

    def claims(self, template: str, /) -> bool:
        """Whether a chat template asks for it."""


KindT = TypeVar("KindT", bound=Kind)


def claimed(kinds: Sequence[KindT], template: str | None) -> KindT | None:
    """The first that claims a chat template."""
    return next((kind for kind in kinds if kind.claims(template or "")), None)


def named(kinds: Sequence[KindT], name: str, what: str) -> KindT | None:
    """The one of that name; ``None`` for "none". Raises ConfigError with the known names; ``what`` they are."""
    if name == "none":
        return None
    for kind in kinds:
        if kind.name == name:
            return kind
    known = ", ".join(dict.fromkeys(["auto", "none", *(kind.name for kind in kinds)]))
    raise ConfigError(f"there is no {what} {name!r}; choose {known} (--{what.replace(' ', '-')})")
