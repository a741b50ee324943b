"""The files of a new platform plugin: real ones, for a platform called acme, in which the name is replaced.

They lie in ``templates/platform``, each called as it will be with ``.tmpl`` behind, so that no tool takes them for a
part of Octavo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

from octavo.errors import ConfigError
from octavo.platform.discovery import discover, platform_extras

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_LONGEST = 40
_SUFFIX = ".tmpl"
_TAKEN = frozenset({"conformance"})
"""Distributions of Octavo, called octavo-NAME, that are no platform."""


def check_name(name: str) -> None:
    """Raises ConfigError unless a platform may be called ``name``, and none is yet."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            f"a platform cannot be called {name!r}: use at most {_LONGEST} lower-case letters, digits, single - and _, "
            "with a letter first; people type it after --platform"
        )
    owners = {f.name: f.distribution for f in discover().platforms}
    owner = owners.get(name) or _owner(distribution_of(name))
    if owner is None and (name in platform_extras() or name in _TAKEN):
        owner = "Octavo itself"
    if owner is not None:
        raise ConfigError(f"there is a platform or distribution called {name} already, of {owner}; choose another name")


def _owner(distribution: str) -> str | None:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return None


def distribution_of(name: str) -> str:
    """What pip calls the plugin of a platform."""
    return "octavo-" + name.replace("_", "-")


def files(name: str) -> dict[str, str]:
    """The plugin's files by their path in it, for a platform called ``name``."""
    parts = re.split(r"[_-]", name)
    words = {
        "octavo_acme": "octavo_" + "_".join(parts),
        "octavo-acme": distribution_of(name),
        "Acme": "".join(part.capitalize() for part in parts),
        "acme": name,
    }
    found = re.compile("|".join(words))  # in this order: the longer words are tried first

    def named(text: str) -> str:
        return found.sub(lambda match: words[match[0]], text)

    root = resources.files("octavo.cli") / "templates" / "platform"
    return {named(path): named(source.read_text(encoding="utf-8")) for path, source in sorted(_templates(root))}


def _templates(folder: Traversable, at: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, f"{at}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield at + entry.name.removesuffix(_SUFFIX), entry


def write(name: str, folder: Path) -> list[Path]:
    """Write the plugin into ``folder``, which is made. Raises ConfigError for a bad name, and for a folder that has
    anything in it: nothing is ever overwritten.
    """
    check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already and not empty; remove it, or name another folder (--dir)")
    written = []
    try:
        for path, text in files(name).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as stream:
                stream.write(text)
            written.append(target)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error} (--dir)") from error
    return written
