"""Finding platforms and choosing one. A plugin that fails to import, or raises, takes nobody else down."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal

import pluggy

from octavo.errors import PlatformAmbiguous, PlatformNotFound, PlatformUnavailable
from octavo.platform import hookspecs
from octavo.platform.contract import Platform
from octavo.platform.info import PlatformInfo, Probe, refuse_contract

MEMBERS = ("info", "probe", "capabilities", "negotiate", "open")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """One platform, or one plugin that failed to give any.

    ``name`` is the platform's, or the entry point's where the platform could not say. ``distribution`` says what to
    upgrade or remove. ``platform`` is ``None`` if the plugin is broken; ``probe.reason`` then says how.
    """

    name: str
    distribution: str
    probe: Probe
    platform: Platform | None = None
    kind: str = ""

    @property
    def verdict(self) -> Literal["available", "unavailable", "broken"]:
        """Whether it can be used here, and if not, whose fault that is: the machine's or the plugin's."""
        return "broken" if self.platform is None else "available" if self.probe.available else "unavailable"


@dataclass(frozen=True)
class Registry:
    """What the installed plugins provide."""

    platforms: tuple[Found, ...]
    families: tuple[Any, ...]
    """All that the ``octavo_models`` hook returned; whoever needs one kind of it takes that kind."""


def discover() -> Registry:
    """Import every plugin of the entry point group, each on its own, and probe its platforms. No plugin makes it raise.

    Neither imports an SDK nor touches a device, as long as the plugins keep the contract.
    """
    found: list[Found] = []
    families: list[Any] = []
    for entry in sorted(metadata.entry_points(group=hookspecs.ENTRY_POINT_GROUP), key=lambda e: (e.name, e.value)):
        distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        try:
            platforms, models = _load(entry)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin's import or hooks raise is its verdict
            found.append(_broken(entry.name, distribution, error))
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
    families = [f for batch in manager.hook.octavo_models() for f in batch]
    if not platforms and not families:
        raise LookupError(
            f"{entry.value} provides nothing: no function marked @hookimpl returned a platform or a family"
        )
    return platforms, families


def _probe(platform: Platform, entry: str, distribution: str) -> Found:
    """The verdict on one platform. It promises not to raise; a broken promise must not take the others down."""
    name = entry
    try:
        missing = [m for m in MEMBERS if not _has(platform, m)]
        if missing:
            return _broken(name, distribution, f"it lacks {', '.join(missing)} of the platform contract")
        info: object = platform.info
        if not isinstance(info, PlatformInfo):
            return _broken(name, distribution, f"its info is a {type(info).__name__}, not a PlatformInfo")
        name = info.name
        refusal = refuse_contract(info.contract)
        if refusal is not None:
            return _broken(name, distribution, refusal)
        probe: object = platform.probe()
        if not isinstance(probe, Probe):
            return _broken(name, distribution, f"its probe() returned a {type(probe).__name__}, not a Probe")
        return Found(name, distribution, probe, platform, info.kind)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return _broken(name, distribution, error)


def _has(platform: object, member: str) -> bool:
    """Whether there is such a member, without evaluating it: a property that raises is not a missing one."""
    try:
        inspect.getattr_static(platform, member)
    except AttributeError:
        return False
    return True


def _broken(name: str, distribution: str, why: BaseException | str) -> Found:
    reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    return Found(name, distribution, Probe(False, " ".join(reason.split())))  # on one line, as every verdict


def _refuse_twins(found: list[Found]) -> tuple[Found, ...]:
    """Two plugins that provide one name are both unusable, since choosing either would be a guess.

    A broken plugin provides none, so it cannot spoil another's.
    """
    owners: dict[str, list[str]] = {}
    for f in found:
        if f.platform is not None:
            owners.setdefault(f.name, []).append(f.distribution)

    def judge(f: Found) -> Found:
        rivals = owners.get(f.name, [])
        if f.platform is None or len(rivals) == 1:
            return f
        reason = f"{' and '.join(rivals)} each provide a platform called {f.name}; uninstall all but one"
        return replace(f, probe=Probe(False, reason), platform=None, kind="")

    return tuple(map(judge, found))


def select(found: Iterable[Found], name: str | None = None) -> Platform:
    """The platform to run on: the named one, else the one available accelerator, else the host.

    Raises PlatformNotFound, PlatformUnavailable or PlatformAmbiguous. There is no silent fallback: where nobody named a
    platform, a warning says of each accelerator and each broken plugin why it is passed over.
    """
    everything = list(found)
    if name is not None:
        return _named(everything, name)
    chosen = default(everything)
    _warn_of_passed_over(everything, chosen.name)
    assert chosen.platform is not None, "available platforms are loaded"
    return chosen.platform


def default(everything: Sequence[Found]) -> Found:
    """What `select` chooses where nobody named a platform. Raises as it does, and warns of nothing."""
    usable = [f for f in everything if f.verdict == "available"]
    for kind in ("accelerator", "host"):
        candidates = [f for f in usable if f.kind == kind]
        if len(candidates) > 1:
            choices = " or ".join(f"--platform {f.name}" for f in candidates)
            raise PlatformAmbiguous(f"{len(candidates)} {kind} platforms are available: choose with {choices}")
        if candidates:
            return candidates[0]
    unnamed = "it is used only where it is named (--platform {})"  # available, but of a kind that is never a default
    tried = "; ".join(f"{f.name}: {f.probe.reason or unnamed.format(f.name)}" for f in everything)
    tried = tried or "no platform plugin is installed"
    extras = " or ".join(f"pip install 'octavo[{extra}]'" for extra in platform_extras())
    raise PlatformNotFound(f"no platform can run here ({tried}); install one: {extras or 'a plugin of its vendor'}")


def _warn_of_passed_over(everything: Iterable[Found], chosen: str) -> None:
    for f in everything:
        if f.verdict == "broken" or (f.verdict == "unavailable" and f.kind == "accelerator"):
            _logger.warning(
                "platform %s (%s) is %s: %s; running on %s (--platform %s says so without this warning)",
                f.name, f.distribution, f.verdict, f.probe.reason, chosen, chosen,
            )  # fmt: skip


def select_compiler(found: Iterable[Found], name: str | None = None) -> Platform:
    """The platform to compile with: the named one, whether or not this machine could run it; else as `select`."""
    everything = list(found)
    chosen = next((f.platform for f in everything if f.name == name and f.platform is not None), None)
    return chosen if chosen is not None else select(everything, name)


def _named(everything: list[Found], name: str) -> Platform:
    matches = sorted((f for f in everything if f.name == name), key=lambda f: f.platform is None)
    if not matches:
        installed = ", ".join(sorted({f.name for f in everything if f.platform is not None})) or "none"
        broken = "".join(
            f"; broken: {f.name} ({f.distribution}): {f.probe.reason}" for f in everything if f.platform is None
        )
        raise PlatformNotFound(
            f"platform {name} is not installed; {install_hint(name)} (installed: {installed}{broken})"
        )
    chosen = matches[0]
    if chosen.platform is None or not chosen.probe.available:
        raise PlatformUnavailable(f"platform {name} ({chosen.distribution}) cannot be used: {chosen.probe.reason}")
    return chosen.platform


def install_hint(name: str) -> str:
    """How to install the platform ``name``: an extra of Octavo, or its vendor's plugin."""
    extras = platform_extras()
    if name in extras:
        return f"install it: pip install 'octavo[{name}]'"
    return (
        f"it is none of Octavo's own ({', '.join(extras) or 'none'}), so install its vendor's plugin, "
        f"by convention: pip install octavo-{name}"
    )


def platform_extras() -> tuple[str, ...]:
    """The extras of Octavo that bring a platform: each names the distribution ``octavo-EXTRA``."""
    try:
        wanted = metadata.requires("octavo") or []
    except metadata.PackageNotFoundError:  # running from a source tree: nothing is installed to look at
        return ()
    named = (re.match(r"octavo-([a-z0-9]+)\b.*extra\s*==\s*['\"]\1['\"]", text) for text in wanted)
    return tuple(match[1] for match in named if match)
