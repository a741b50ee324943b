"""Finding platforms and choosing one. A plugin that fails to import, or raises, takes nobody else down."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import pluggy

from octavo.errors import PlatformAmbiguous, PlatformNotFound, PlatformUnavailable
from octavo.platform import hookspecs
from octavo.platform.contract import Platform
from octavo.platform.info import CONTRACT, Probe

MEMBERS = ("info", "probe", "capabilities", "negotiate", "open")


@dataclass(frozen=True)
class Found:
    """One platform, or one plugin that failed to give any.

    ``name`` is the platform's, or the entry point's if there is no platform. ``distribution`` says what to upgrade or remove.
    """

    name: str
    distribution: str
    probe: Probe
    platform: Platform | None = None
    kind: str = ""

    @property
    def verdict(self) -> str:
        """One word: available, unavailable or broken."""
        return "broken" if self.platform is None else "available" if self.probe.available else "unavailable"


@dataclass(frozen=True)
class Registry:
    """What the installed plugins provide."""

    platforms: tuple[Found, ...]
    families: tuple[Any, ...]


def discover() -> Registry:
    """Import every plugin of the entry point group, each on its own, and probe its platforms."""
    found: list[Found] = []
    families: list[Any] = []
    for entry in sorted(metadata.entry_points(group=hookspecs.ENTRY_POINT_GROUP), key=lambda e: e.name):
        distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        try:
            platforms, models = _load(entry)
        except Exception as error:  # anything that a plugin's import or hooks may raise; it becomes its verdict
            found.append(Found(entry.name, distribution, Probe(False, _reason(error))))
            continue
        families += models
        found += [_probe(platform, entry.name, distribution) for platform in platforms]
    return Registry(_refuse_twins(found), tuple(families))


def _load(entry: metadata.EntryPoint) -> tuple[list[Platform], list[Any]]:
    """The platforms and families of one plugin, in a manager of its own so that none sees another's failure."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(entry.load(), entry.name)
    manager.check_pending()
    platforms = [p for batch in manager.hook.octavo_platforms() for p in batch]
    return platforms, [f for batch in manager.hook.octavo_models() for f in batch]


def _probe(platform: Platform, entry: str, distribution: str) -> Found:
    missing = [m for m in MEMBERS if not hasattr(platform, m)]
    if missing:
        reason = f"it lacks {', '.join(missing)} of the platform contract"
        return Found(entry, distribution, Probe(False, reason))
    try:
        info = platform.info
        for facet, version in info.contract.items():
            ours = CONTRACT.get(facet)
            if ours is None or ours.split(".")[0] != version.split(".")[0]:
                reason = f"it was written for {facet} contract {version}; this is {ours or 'without that facet'}"
                return Found(info.name, distribution, Probe(False, reason))
        return Found(info.name, distribution, platform.probe(), platform, info.kind)
    except Exception as error:  # probe() promises not to raise; a broken promise must not take the others down
        return Found(entry, distribution, Probe(False, _reason(error)))


def _refuse_twins(found: list[Found]) -> tuple[Found, ...]:
    """Two plugins that claim one name are both unusable: choosing either would be a guess."""
    names = [f.name for f in found]
    return tuple(
        f
        if names.count(f.name) == 1
        else Found(f.name, f.distribution, Probe(False, f"another installed plugin is called {f.name} as well; remove one"))
        for f in found
    )


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def select(found: Iterable[Found], name: str | None = None) -> Platform:
    """The platform to run on: the named one, else the one available accelerator, else the host.

    Raises PlatformNotFound, PlatformUnavailable or PlatformAmbiguous; there is no silent fallback.
    """
    everything = list(found)
    if name is not None:
        return _named(everything, name)
    usable = [f for f in everything if f.verdict == "available"]
    for kind in ("accelerator", "host"):
        candidates = [f for f in usable if f.kind == kind]
        if len(candidates) > 1:
            choices = " or ".join(f"--platform {f.name}" for f in candidates)
            raise PlatformAmbiguous(f"{len(candidates)} {kind} platforms are available: choose with {choices}")
        if candidates:
            platform = candidates[0].platform
            assert platform is not None, "available platforms are loaded"
            return platform
    tried = "; ".join(f"{f.name}: {f.probe.reason}" for f in everything) or "no platform plugin is installed"
    raise PlatformNotFound(f"no platform can run here ({tried}); install one: pip install 'octavo[PLATFORM]'")


def _named(everything: list[Found], name: str) -> Platform:
    matches = [f for f in everything if f.name == name]
    if not matches:
        installed = ", ".join(sorted({f.name for f in everything})) or "none"
        raise PlatformNotFound(f"platform {name} is not installed; {install_hint(name)}. Installed: {installed}")
    chosen = matches[0]
    if chosen.platform is None or not chosen.probe.available:
        raise PlatformUnavailable(f"platform {name} ({chosen.distribution}) cannot be used: {chosen.probe.reason}")
    return chosen.platform


def install_hint(name: str) -> str:
    """How to install the platform ``name``: an extra of Octavo, or its vendor's plugin."""
    extras: list[str] = []
    with contextlib.suppress(metadata.PackageNotFoundError):  # running from a source tree: no extras to look at
        extras = metadata.metadata("octavo").get_all("Provides-Extra") or []
    if name in extras:
        return f"install it: pip install 'octavo[{name}]'"
    return f"it is no extra of Octavo ({', '.join(extras) or 'none'}): install its vendor's plugin"
