"""The bundle: all that is needed to check a claim without the machine that it was made on.

    STATEMENT.json   the claim: certificate line, platform, tier, profile, seed, trust class
    env.json         machine, versions, digests of the plugin's files before and after
    manifest.json    what the platform declared
    results.jsonl    a line for each check: raw measurements, floats in hexadecimal
    suite.txt        checks.lock as it was
    SHA256SUMS       of the five above

Exactly these files, in a .tgz whose bytes depend on its content alone.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import OctavoError
from octavo_conformance import distribution_version, suite_version
from octavo_conformance.judge.tol import TIERS
from octavo_conformance.proof.certificate import Result, conclude
from octavo_conformance.suite import capability, lock
from octavo_conformance.suite.check import LEVELS, PROFILES, Check, Profile
from octavo_conformance.suite.record import Record
from octavo_conformance.suite.registry import catalogue
from octavo_conformance.suite.runner import Run
from octavo_conformance.worker.values import capabilities_in

FILES = ("STATEMENT.json", "env.json", "manifest.json", "results.jsonl", "suite.txt")
SUMS = "SHA256SUMS"
_MOST = 256 << 20
_NOT_KEPT = frozenset({"info", "capabilities", "pid", "package"})
"""What the worker says of itself and env.json does not: it is in the manifest, or tells only where files lay."""


class BundleError(OctavoError):
    """A bundle is damaged, incomplete, or says what its measurements do not."""


@dataclass(frozen=True)
class Bundle:
    """A bundle's content, parsed. Made by `read`, which checks the hashes and the set of files, and nothing else."""

    statement: Mapping[str, Any]
    env: Mapping[str, Any]
    manifest: Mapping[str, Any]
    records: tuple[Record, ...]
    lock: str

    @property
    def platform(self) -> str:
        """Name of the platform."""
        return str(self.statement["platform"])

    @property
    def profile(self) -> Profile:
        """Which profile ran."""
        named: Profile = next(p for p in PROFILES if p == self.statement["profile"])
        return named

    def conclude(self, checks: Mapping[str, Check]) -> Result:
        """What follows from the measurements, by the rules of this installation."""
        said = self.statement
        return conclude(
            self.records, checks, tier=said["tier"], profile=self.profile, whole=bool(said["whole"]),
            levels=said["levels"],
            differences=lock.differences(self.lock, checks), mutant=str(said["mutant"]),
        )  # fmt: skip


def write(run: Run, result: Result, folder: Path) -> Path:
    """The bundle of a run, as ``conformance-PLATFORM-DIGEST.tgz`` in ``folder``, which is made."""
    info = run.description["info"]
    statement = {
        "certificate": result.line,
        "trust": "SELF",
        "platform": info["name"],
        "vendor": info["vendor"],
        "version": info["version"],
        "tier": run.tier,
        "profile": run.selection.profile,
        "whole": run.selection.whole,
        "levels": list(run.selection.claimed),
        "seed": run.seed,
        "mutant": run.mutant,
        "status": result.verdict,
        "gaps": list(result.gaps),
        "suite": suite_version(),
        "distribution": distribution_version(),
    }
    env = {key: value for key, value in run.description.items() if key not in _NOT_KEPT}
    manifest = {"info": info, "capabilities": run.description["capabilities"]}
    files = {
        "STATEMENT.json": _json(statement),
        "env.json": _json(env),
        "manifest.json": _json(manifest),
        "results.jsonl": "".join(json.dumps(r.to_json(), sort_keys=True) + "\n" for r in run.records),
        "suite.txt": lock.text(catalogue().values()),
    }
    files[SUMS] = sums(files)
    packed = pack(files)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"conformance-{info['name']}-{hashlib.sha256(packed).hexdigest()[:8]}.tgz"
    path.write_bytes(packed)
    return path


def sums(files: Mapping[str, str]) -> str:
    """SHA256SUMS of the files."""
    return "".join(f"{hashlib.sha256(files[name].encode()).hexdigest()}  {name}\n" for name in FILES)


def pack(files: Mapping[str, str]) -> bytes:
    """A .tgz of the files: no dates, no owners."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            data = files[name].encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), mtime=0)


def unpack(path: Path) -> dict[str, str]:
    """The files of a bundle by name. Raises BundleError for anything but plain files of a sane size."""
    files: dict[str, str] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if not member.isfile() or member.name in files or member.size > _MOST:
                    raise BundleError(f"{path}: {member.name} is no plain file, comes twice, or is too large")
                stream = archive.extractfile(member)
                assert stream is not None, "plain files have content"
                files[member.name] = stream.read().decode()
    except (OSError, tarfile.TarError, UnicodeDecodeError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BundleError(f"{path} is no bundle: {why}") from error
    return files


def read(path: Path) -> Bundle:
    """A bundle whose files are all there, nothing else is, and every hash is right. Raises BundleError."""
    files = unpack(path)
    wrong = set(files) ^ {*FILES, SUMS}
    if wrong:
        raise BundleError(f"{path} has not exactly the files of a bundle: {', '.join(sorted(wrong))}")
    if files[SUMS] != sums(files):
        raise BundleError(f"{path}: SHA256SUMS does not fit; a file was changed")
    try:
        statement, env, manifest = (json.loads(files[name]) for name in FILES[:3])
        records = tuple(Record.from_json(json.loads(line)) for line in files["results.jsonl"].splitlines())
        if statement["tier"] not in TIERS or statement["profile"] not in PROFILES:
            raise ValueError(f"there is no tier {statement['tier']!r} or profile {statement['profile']!r}")
        if not isinstance(statement["levels"], list) or not set(statement["levels"]) <= set(LEVELS):
            raise ValueError(f"there are no levels {statement['levels']!r}")
        return Bundle(statement, env, manifest, records, files["suite.txt"])
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def verify(path: Path) -> tuple[Bundle, Result, list[str]]:
    """Recompute every verdict. Returns the bundle, what follows from it, and every way in which that is not what it
    claims.

    Raises BundleError where it cannot be read at all.
    """
    bundle = read(path)
    result = bundle.conclude(catalogue())
    found: list[str] = []
    ids = [record.id for record in bundle.records]
    if len(ids) != len(set(ids)):
        found.append("a check comes twice in the results")
    if set(ids) != lock.ids(bundle.lock):
        odd = sorted(set(ids) ^ lock.ids(bundle.lock))
        found.append(f"the results are not those of the frozen list: {', '.join(odd[:5])}")
    found += lock.differences(bundle.lock, catalogue())
    claimed = bundle.statement
    for name, ours in (
        ("certificate", result.line), ("status", result.verdict), ("gaps", list(result.gaps)),
        ("platform", bundle.manifest["info"]["name"]), ("vendor", bundle.manifest["info"]["vendor"]),
        ("version", bundle.manifest["info"]["version"]),
    ):  # fmt: skip
        if claimed.get(name) != ours:
            found.append(f"it claims {name} {claimed.get(name)!r}; its measurements say {ours!r}")
    found += _unlike_manifest(bundle)
    if bundle.env.get("digest") != bundle.env.get("digest_after"):
        found.append("the plugin's files changed during the run")
    return bundle, result, found


def _unlike_manifest(bundle: Bundle) -> list[str]:
    """Checks that ran, or were refused, other than what was declared asks for."""
    checks = catalogue()
    can = capabilities_in(bundle.manifest["capabilities"])
    found = []
    for record in bundle.records:
        check = checks.get(record.id)
        if check is None or record.mode == "not run":
            continue
        expected = "refusal" if capability.missing(can, check.requires) else "run"
        if record.mode != expected:
            found.append(f"{record.id} is a {record.mode} where the manifest asks for a {expected}")
    return found


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, indent=1) + "\n"
