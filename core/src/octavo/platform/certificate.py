"""What a platform was certified as, where that is kept, and whether what runs is what was certified.

``octavo conformance certify`` writes a certificate, a small JSON file beside the bundle that proves it, into one of the
two places where ``octavo platforms`` looks:

    the user's own    octavo/certificates/PLATFORM in the user's data folder
    the plugin's      conformance in its package, from where a release carries it to everybody

It is signed by nobody: its class of trust is SELF, the word of whoever ran the suite. Who wants more runs
``octavo conformance verify`` on the bundle, which recomputes every verdict.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from octavo import env
from octavo._version import version
from octavo.errors import PlatformError
from octavo.platform.contract import Platform
from octavo.platform.info import CONTRACT

FILE = "certificate.json"
SHIPPED = "conformance"
"""Folder in a plugin's package for the certificate that it is released with."""
_MOST = 1 << 20


@dataclass(frozen=True)
class Certificate:
    """One platform, certified. ``line`` says what for; ``version`` is the plugin's, ``octavo`` that of core, and
    ``code`` the `code_digest` of the plugin's files; ``contract`` the versions of the contract's facets that core had.
    ``bundle`` is the name of the file beside it that proves it, ``issued`` a date (YYYY-MM-DD).
    """

    platform: str
    line: str
    trust: str
    version: str
    octavo: str
    suite: str
    code: str
    bundle: str
    issued: str
    contract: Mapping[str, str]

    def to_json(self) -> str:
        """As the file holds it."""
        return json.dumps({**asdict(self), "contract": dict(self.contract)}, sort_keys=True, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """The inverse. Raises ValueError for anything else."""
        raw: Any = json.loads(text)
        names = {f.name for f in fields(Certificate)}
        if not isinstance(raw, dict) or set(raw) != names:
            raise ValueError(f"a certificate has exactly {', '.join(sorted(names))}")
        contract = raw.pop("contract")
        texts = [*raw.values(), *contract.values()] if isinstance(contract, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a certificate holds text alone")
        if Path(raw["bundle"]).name != raw["bundle"]:
            raise ValueError(f"its bundle {raw['bundle']!r} is not the name of a file beside it")
        return Certificate(**raw, contract=contract)


@dataclass(frozen=True)
class Held:
    """A certificate where it was found, and in what that which runs differs from it, a sentence each."""

    certificate: Certificate
    path: Path
    differences: tuple[str, ...]

    @property
    def bundle(self) -> Path | None:
        """The proof, if it is there."""
        path = self.path.parent / self.certificate.bundle
        return path if path.is_file() else None


def users_folder(platform: str) -> Path:
    """Where this user's certificate of a platform is kept."""
    return env.data_folder() / "certificates" / platform


def packages_folder(platform: Platform) -> Path | None:
    """Where a plugin's own certificate is kept; ``None`` where the plugin is a module and no package."""
    roots = _roots(platform)
    return roots[0] / SHIPPED if roots and roots[0].is_dir() else None


def held(platform: Platform) -> list[Held]:
    """The certificates of a platform, the user's own first. Raises PlatformError for one that cannot be read."""
    shipped = packages_folder(platform)
    places = [users_folder(platform.info.name), *([shipped] if shipped else [])]
    return [_read(place / FILE, platform) for place in places if (place / FILE).is_file()]


def _read(path: Path, platform: Platform) -> Held:
    try:
        if path.stat().st_size > _MOST:
            raise ValueError(f"it is larger than {_MOST} bytes")
        certificate = Certificate.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlatformError(f"the certificate {path} cannot be read ({error}); certify again, or delete it") from error
    return Held(certificate, path, tuple(differences(certificate, platform)))


def differences(certificate: Certificate, platform: Platform) -> Iterable[str]:
    """In what that which runs is not what was certified, a sentence each."""
    info = platform.info
    if certificate.platform != info.name:
        yield f"it is a certificate of {certificate.platform}"
    for what, running, certified in (
        ("octavo", version(), certificate.octavo),
        (f"the plugin {info.name}", info.version, certificate.version),
    ):
        if running != certified:
            yield f"{what} is {running}; certified was {certified}"
    for facet in sorted(CONTRACT.keys() | certificate.contract.keys()):
        running, certified = CONTRACT.get(facet, "absent"), certificate.contract.get(facet, "absent")
        if running != certified:
            yield f"the {facet} contract is {running}; certified was with {certified}"
    if info.version == certificate.version and code_digest(platform) != certificate.code:
        yield f"the plugin's files are not those that were certified, although both are {info.version}"


def code_digest(platform: Platform) -> str:
    """SHA-256 over every file of the top-level package that the platform's class is from, but for compiled Python and
    what was certified of it.
    """
    whole = hashlib.sha256()
    for root in _roots(platform):
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for path in files:
            if "__pycache__" not in path.parts and not _is_certificate(path, root):
                whole.update(path.relative_to(root.parent).as_posix().encode() + b"\0")
                whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _is_certificate(path: Path, root: Path) -> bool:
    return path.parent == root / SHIPPED and (path.name == FILE or path.suffix == ".tgz")


def _roots(platform: Platform) -> list[Path]:
    """The folders of the plugin's package, or its one file."""
    top = type(platform).__module__.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        return []
    return [Path(p) for p in spec.submodule_search_locations or ()] or [Path(str(spec.origin))]
