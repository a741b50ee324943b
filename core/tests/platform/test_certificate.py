"""Certificates: read exactly, found in both places, and compared with what runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from octavo._version import version
from octavo.errors import PlatformError
from octavo.platform import CONTRACT, Platform
from octavo.platform.certificate import (
    FILE,
    Certificate,
    code_digest,
    differences,
    held,
    packages_folder,
    users_folder,
)

SOURCE = """
from octavo import platform as api

class Chip:
    info = api.PlatformInfo("chip", "Nobody", "1.0", "accelerator",
                            {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"})
"""


@pytest.fixture
def chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """A platform of a package that lies in a folder, and a user whose data lies beside it."""
    package = tmp_path / "site" / "octavo_chip"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "platform.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    from octavo_chip.platform import Chip  # type: ignore[import-not-found]

    yield Chip()
    for name in [name for name in sys.modules if name.startswith("octavo_chip")]:
        del sys.modules[name]


def certificate(platform: Platform) -> Certificate:
    return Certificate(
        platform="chip", line="octavo-conformance 1.0 · L0 · A1 · full", trust="SELF", version="1.0", octavo=version(),
        suite="1.0", code=code_digest(platform), bundle="conformance-chip-0.tgz", issued="2026-01-02",
        contract=dict(CONTRACT),
    )  # fmt: skip


def put(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_text(text, encoding="utf-8")


def test_a_certificate_survives_its_file(chip: Platform) -> None:
    assert Certificate.from_json(certificate(chip).to_json()) == certificate(chip)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"line": 7}, "holds text alone"),
        ({"contract": ["1.0"]}, "holds text alone"),
        ({"more": "x"}, "has exactly bundle, code"),
        ({"bundle": "../../etc/passwd"}, "not the name of a file beside it"),
    ],
)
def test_what_is_no_certificate_is_refused(chip: Platform, change: dict[str, object], message: str) -> None:
    raw = {**json.loads(certificate(chip).to_json()), **change}
    with pytest.raises(ValueError, match=message):
        Certificate.from_json(json.dumps(raw))


def test_a_damaged_file_is_named_with_the_cure(chip: Platform) -> None:
    put(users_folder("chip"), "{")
    with pytest.raises(PlatformError, match=rf"{FILE} cannot be read \(.*\); certify again, or delete it"):
        held(chip)


def test_the_user_s_own_comes_before_the_plugin_s(chip: Platform, tmp_path: Path) -> None:
    assert held(chip) == []
    package = packages_folder(chip)
    assert package == tmp_path / "site" / "octavo_chip" / "conformance"
    put(package, replace(certificate(chip), issued="2025-01-01").to_json())
    put(users_folder("chip"), certificate(chip).to_json())
    (package / "conformance-chip-0.tgz").write_bytes(b"proof")

    own, shipped = held(chip)

    assert (own.certificate.issued, shipped.certificate.issued) == ("2026-01-02", "2025-01-01")
    assert (own.bundle, shipped.bundle) == (None, package / "conformance-chip-0.tgz")
    assert own.differences == shipped.differences == ()  # what is certified is not changed by being certified


def test_every_version_that_differs_is_told(chip: Platform) -> None:
    certified = certificate(chip)
    assert list(differences(certified, chip)) == []
    for change, message in (
        ({"octavo": "0.0.1"}, f"octavo is {version()}; certified was 0.0.1"),
        ({"version": "0.9"}, "the plugin chip is 1.0; certified was 0.9"),
        ({"contract": {**CONTRACT, "kv": "0.9"}}, f"the kv contract is {CONTRACT['kv']}; certified was with 0.9"),
        ({"contract": {**CONTRACT, "odd": "1.0"}}, "the odd contract is absent; certified was with 1.0"),
        ({"platform": "other"}, "it is a certificate of other"),
    ):
        assert list(differences(replace(certified, **change), chip)) == [message]  # type: ignore[arg-type]


def test_other_files_of_the_same_version_are_told(chip: Platform, tmp_path: Path) -> None:
    certified = certificate(chip)
    (tmp_path / "site" / "octavo_chip" / "kernel.bin").write_bytes(b"another one")
    assert list(differences(certified, chip)) == [
        "the plugin's files are not those that were certified, although both are 1.0"
    ]


def test_what_python_compiled_is_no_part_of_the_code(chip: Platform, tmp_path: Path) -> None:
    before = code_digest(chip)
    cache = tmp_path / "site" / "octavo_chip" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "x.pyc").write_bytes(b"x")
    assert code_digest(chip) == before
