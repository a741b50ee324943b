"""Which platform runs: the named one or an error, else the one available accelerator, else the host. Never a guess."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from octavo.config import EngineConfig
from octavo.engine.startup import start
from octavo.errors import PlatformAmbiguous, PlatformNotFound, PlatformUnavailable
from octavo.platform import Probe
from octavo.platform.discovery import Found, install_hint, platform_extras, select


class Platform:
    """Enough of one to be selected."""

    def __init__(self, name: str) -> None:
        self.name = name


def platform(name: str, kind: str, *, available: bool = True, reason: str = "") -> Found:
    return Found(name, f"octavo-{name} 1.0", Probe(available, reason), Platform(name), kind)  # type: ignore[arg-type]


def broken(name: str, reason: str) -> Found:
    return Found(name, f"octavo-{name} 1.0", Probe(False, reason))


def chosen(*found: Found, name: str | None = None) -> str:
    return select(found, name).name  # type: ignore[attr-defined,no-any-return]


HOST = platform("host", "host")
ACME = platform("acme", "accelerator")
ZETA = platform("zeta", "accelerator")
NO_DRIVER = platform("acme", "accelerator", available=False, reason="no driver")


def test_the_named_platform_is_taken_before_any_other() -> None:
    assert chosen(HOST, ACME, ZETA, name="host") == "host"
    assert chosen(HOST, ACME, ZETA, name="zeta") == "zeta"


def test_the_one_available_accelerator_is_preferred_to_the_host() -> None:
    assert chosen(HOST, ACME) == "acme"
    assert chosen(HOST, NO_DRIVER, ZETA) == "zeta"


def test_a_reference_platform_is_used_only_where_it_is_named() -> None:
    reference = platform("reference", "reference")
    assert chosen(reference, HOST) == "host"
    assert chosen(reference, HOST, name="reference") == "reference"
    named = r"no platform can run here \(reference: it is used only where it is named \(--platform reference\)\)"
    with pytest.raises(PlatformNotFound, match=named):
        chosen(reference)


def test_the_host_is_taken_when_no_accelerator_is_available_and_the_reasons_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "octavo"):
        assert chosen(HOST, NO_DRIVER, broken("zeta", "ImportError: libzeta.so")) == "host"
    assert [r.message.split(";")[0] for r in caplog.records] == [
        "platform acme (octavo-acme 1.0) is unavailable: no driver",
        "platform zeta (octavo-zeta 1.0) is broken: ImportError: libzeta.so",
    ]
    assert all("running on host" in r.message for r in caplog.records)


def test_naming_a_platform_logs_nothing_about_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "octavo"):
        chosen(HOST, NO_DRIVER, name="host")
    assert not caplog.records


@pytest.mark.parametrize("kind", ["accelerator", "host"])
def test_two_candidates_are_an_error_that_prints_both_flags(kind: str) -> None:
    with pytest.raises(PlatformAmbiguous, match=r"--platform acme or --platform zeta"):
        select([platform("acme", kind), platform("zeta", kind)])


def test_a_named_platform_that_is_unavailable_is_fatal_although_the_host_could_run() -> None:
    with pytest.raises(PlatformUnavailable, match=r"platform acme \(octavo-acme 1.0\) cannot be used: no driver"):
        select([HOST, NO_DRIVER], "acme")


def test_a_named_platform_that_is_broken_is_fatal_and_says_how() -> None:
    with pytest.raises(PlatformUnavailable, match=r"platform acme .* cannot be used: ImportError: libacme"):
        select([HOST, broken("acme", "ImportError: libacme")], "acme")


def test_a_working_platform_is_taken_before_a_broken_plugin_of_its_name() -> None:
    assert chosen(broken("acme", "ImportError"), ACME, name="acme") == "acme"


def test_a_missing_platform_lists_what_is_installed_and_what_is_broken() -> None:
    with pytest.raises(PlatformNotFound) as caught:
        select([HOST, broken("acme-plugin", "ImportError: libacme")], "acme")
    message = str(caught.value)
    assert "platform acme is not installed" in message
    assert "install its vendor's plugin, by convention: pip install octavo-acme" in message
    assert "installed: host" in message
    assert "acme-plugin (octavo-acme-plugin 1.0): ImportError: libacme" in message


def test_an_official_platform_that_is_missing_is_an_extra_to_install() -> None:
    extras = platform_extras()
    assert extras, "octavo is installed with its platform extras"
    for extra in extras:
        with pytest.raises(PlatformNotFound, match=rf"pip install 'octavo\[{extra}\]'"):
            select([], extra)


def test_an_extra_that_brings_no_platform_is_not_offered_as_one() -> None:
    assert "test" not in platform_extras()
    assert "pip install 'octavo[test]'" not in install_hint("test")


def test_with_nothing_to_run_on_the_error_says_what_was_tried_and_what_to_install() -> None:
    with pytest.raises(PlatformNotFound, match=r"no platform plugin is installed.*pip install 'octavo\["):
        select([])
    with pytest.raises(PlatformNotFound, match="acme: no driver"):
        select([NO_DRIVER])


@pytest.mark.parametrize(
    ("flag", "variable", "named"),
    [(None, "from-variable", "from-variable"), ("from-flag", "from-variable", "from-flag")],
)
def test_the_engine_takes_the_platform_from_the_flag_then_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str | None, variable: str, named: str
) -> None:
    monkeypatch.setenv("OCTAVO_PLATFORM", variable)
    with pytest.raises(PlatformNotFound, match=f"platform {named} is not installed"):
        start(EngineConfig(str(tmp_path), platform=flag), lambda what, done, total: None)
