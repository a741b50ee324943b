"""A bad plugin becomes a verdict that says why, and takes nobody else down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.errors import UnknownArchitecture
from octavo.models.registry import family_for
from octavo.platform import CONTRACT
from octavo.platform.discovery import Found, Registry, discover
from octavo.text.parsing.reasoning import reasoning_parser_for
from octavo.text.parsing.tools import tool_parser_for, tool_parser_named

Install = Callable[..., None]
Source = Callable[..., str]


def found(registry: Registry, name: str) -> Found:
    [match] = [f for f in registry.platforms if f.name == name]
    return match


def test_a_platform_is_found_through_its_entry_point(install: Install, source: Source) -> None:
    install("acme", source())
    acme = found(discover(), "acme")
    assert (acme.verdict, acme.kind, acme.distribution) == ("available", "accelerator", "octavo-acme 1.0")
    assert acme.probe.reason == "one Acme One"
    assert acme.platform is not None


def test_an_unavailable_platform_says_why(install: Install, source: Source) -> None:
    install("acme", source(probe='return Probe(False, "the driver is not loaded; modprobe acme")'))
    acme = found(discover(), "acme")
    assert acme.verdict == "unavailable"
    assert acme.probe.reason == "the driver is not loaded; modprobe acme"


def test_a_verdict_is_one_line_whatever_an_exception_says(install: Install, source: Source) -> None:
    install("acme", "raise RuntimeError('the SDK\\n  gave up\\n')")
    assert found(discover(), "acme").probe.reason == "RuntimeError: the SDK gave up"


NO_HOOKIMPL = "def octavo_platforms():\n    return []\n"
RETURNS_NOTHING = "from octavo.platform import hookimpl\n@hookimpl\ndef octavo_platforms():\n    pass\n"
HOOK_RAISES = (
    "from octavo.platform import hookimpl\n@hookimpl\ndef octavo_platforms():\n    raise OSError('no licence')\n"
)
UNKNOWN_HOOK = "from octavo.platform import hookimpl\n@hookimpl\ndef octavo_platform():\n    return []\n"
LACKS_MEMBERS = """
from octavo.platform import hookimpl
class Half:
    info = None
    def probe(self): ...
    def open(self, rank): ...
@hookimpl
def octavo_platforms():
    return [Half()]
"""
INFO_RAISES = """
from importlib import metadata
from octavo.platform import hookimpl
class Uninstalled:
    @property
    def info(self):
        return metadata.version("octavo-no-such-distribution")
    def probe(self): ...
    def capabilities(self): ...
    def negotiate(self, request): ...
    def open(self, rank): ...
@hookimpl
def octavo_platforms():
    return [Uninstalled()]
"""


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        ("import no_such_sdk", ["ModuleNotFoundError", "no_such_sdk"]),
        ("raise RuntimeError('wrong driver')", ["RuntimeError: wrong driver"]),
        ("import sys\nsys.exit(3)", ["SystemExit: 3"]),
        ("def broken(:", ["SyntaxError"]),
        (HOOK_RAISES, ["OSError: no licence"]),
        (UNKNOWN_HOOK, ["octavo_platform"]),
        (NO_HOOKIMPL, ["provides nothing", "@hookimpl"]),
        (RETURNS_NOTHING, ["provides nothing"]),
        (LACKS_MEMBERS, ["lacks capabilities, negotiate of the platform contract"]),
        (INFO_RAISES, ["PackageNotFoundError", "octavo-no-such-distribution"]),
        (INFO_RAISES.replace("metadata.version", "str"), ["info is a str, not a PlatformInfo"]),
    ],
    ids=[
        "missing module", "raises on import", "exits on import", "syntax error", "hook raises", "unknown hook",
        "no hookimpl", "hook returns nothing", "lacks members", "info raises", "info is something else",
    ],
)  # fmt: skip
def test_a_broken_plugin_is_named_with_its_reason_and_its_neighbours_go_on(
    install: Install, source: Source, plugin: str, why: list[str]
) -> None:
    install("aaa", plugin)
    install("acme", source())
    registry = discover()
    broken = found(registry, "aaa")
    assert (broken.verdict, broken.distribution, broken.platform) == ("broken", "octavo-aaa 1.0", None)
    assert all(part in broken.probe.reason for part in why), broken.probe.reason
    assert found(registry, "acme").verdict == "available"


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ("raise RuntimeError('the bus is gone')", "RuntimeError: the bus is gone"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("return None", "its probe() returned a NoneType, not a Probe"),
    ],
)
def test_a_probe_that_breaks_its_promise_is_reported_under_the_platform_s_own_name(
    install: Install, source: Source, probe: str, why: str
) -> None:
    install("entry", source("acme", probe=probe))
    install("other", source("other"))
    registry = discover()
    broken = found(registry, "acme")
    assert (broken.verdict, broken.probe.reason) == ("broken", why)
    assert found(registry, "other").verdict == "available"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"platform": "0.9"},
            f"version 0.9 of the platform contract and this octavo has {CONTRACT['platform']}; upgrade the plugin",
        ),
        ({"step": "2.0"}, f"version 2.0 of the step contract and this octavo has {CONTRACT['step']}; upgrade octavo"),
        ({"kv": "1.9"}, f"version 1.9 of the kv contract and this octavo has {CONTRACT['kv']}; upgrade octavo"),
        (
            {"telepathy": "1.0"},
            "version 1.0 of the telepathy contract, which this octavo does not have; upgrade octavo",
        ),
        ({"platform": "one"}, "its platform contract version is 'one', which is not MAJOR.MINOR"),
        ({"step": None}, "does not say which version of the step contract it was written for"),
    ],
)
def test_a_foreign_contract_is_refused_with_both_versions_and_what_to_upgrade(
    install: Install, source: Source, change: dict[str, str | None], why: str
) -> None:
    contract = {facet: version for facet, version in {**CONTRACT, **change}.items() if version is not None}
    install("acme", source(contract=contract))
    install("other", source("other"))
    registry = discover()
    acme = found(registry, "acme")
    assert acme.verdict == "broken"
    assert why in acme.probe.reason
    assert found(registry, "other").verdict == "available"


@pytest.mark.parametrize(("name", "kind"), [("Acme One", "accelerator"), ("--acme", "accelerator"), ("acme", "gpu")])
def test_a_name_nobody_can_type_and_an_unknown_kind_are_refused(
    install: Install, source: Source, name: str, kind: str
) -> None:
    install("entry", source(name, kind=kind))
    broken = found(discover(), "entry")
    assert broken.verdict == "broken"
    assert repr(name if kind == "accelerator" else kind) in broken.probe.reason


def test_two_plugins_of_one_name_are_both_refused_and_name_each_other(install: Install, source: Source) -> None:
    install("acme", source("acme"), "octavo-acme")
    install("zeta", source("acme"), "octavo-acme-fork")
    install("other", source("other"))
    registry = discover()
    twins = [f for f in registry.platforms if f.name == "acme"]
    assert [f.verdict for f in twins] == ["broken", "broken"]
    for twin in twins:
        assert "octavo-acme 1.0 and octavo-acme-fork 1.0" in twin.probe.reason
        assert "uninstall" in twin.probe.reason
    assert found(registry, "other").verdict == "available"


def test_a_broken_plugin_does_not_spoil_the_working_one_of_its_name(install: Install, source: Source) -> None:
    install("acme", "import no_such_sdk", "octavo-acme-broken")
    install("zeta", source("acme"), "octavo-acme")
    assert [f.verdict for f in discover().platforms if f.name == "acme"] == ["broken", "available"]


def test_a_plugin_may_bring_models_alone(install: Install) -> None:
    install(
        "families", "from octavo.platform import hookimpl\n@hookimpl\ndef octavo_models():\n    return ['a family']\n"
    )
    registry = discover()
    assert "a family" in registry.families
    assert "families" not in {f.name for f in registry.platforms}


def test_a_plugin_may_bring_parsers_which_are_told_from_families_by_their_type(install: Install) -> None:
    install(
        "parsers",
        "from octavo.platform import hookimpl\n"
        "from octavo.text.parsing.reasoning import ReasoningParser\n"
        "from octavo.text.parsing.reasoning.between import between\n"
        "from octavo.text.parsing.tools import GENERIC, ToolParser\n"
        "MINE = ToolParser('mine', GENERIC.open, claims=lambda template: '<mine>' in template)\n"
        "THOUGHTS = between('muse', '<muse>', '</muse>')\n"
        "@hookimpl\n"
        "def octavo_models():\n    return [MINE, THOUGHTS]\n",
    )
    plugged = discover().families
    tools, reasoning = tool_parser_for("<mine>", plugged), reasoning_parser_for("<muse>", plugged)
    assert (tools and tools.name, reasoning and reasoning.name) == ("mine", "muse")
    assert tool_parser_named("mine", plugged) is tools
    with pytest.raises(UnknownArchitecture, match="Mine"):
        family_for({"architectures": ["Mine"]}, plugged)
