"""Issuing a certificate: the bundle that proves a claim, and beside it the few lines that `octavo platforms` reads."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path

from octavo.errors import OctavoError
from octavo.platform.certificate import FILE, Certificate
from octavo_conformance import suite_version
from octavo_conformance.proof.bundle import Bundle
from octavo_conformance.proof.certificate import Result


def today() -> str:
    """The date, in UTC."""
    return datetime.now(timezone.utc).date().isoformat()


def issue(bundle: Bundle, path: Path, result: Result, folder: Path) -> Path:
    """Write the certificate of a bundle, which lies at ``path``, and the bundle's copy into ``folder``, in place of
    what was issued there before. Returns the certificate's path.
    """
    assert result.exit_code == 0 and result.levels, "only what certifies is issued"
    certificate = Certificate(
        platform=bundle.platform,
        line=result.line,
        trust=str(bundle.statement["trust"]),
        version=str(bundle.statement["version"]),
        octavo=str(bundle.env["versions"]["octavo"]),
        suite=suite_version(),
        code=str(bundle.env["digest"]),
        bundle=path.name,
        issued=today(),
        contract=dict(bundle.env["contract"]),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("conformance-*.tgz"):
            if old.resolve() != path.resolve():
                old.unlink()
        if not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
        written = folder / FILE
        written.write_text(certificate.to_json(), encoding="utf-8")
    except OSError as error:
        raise OctavoError(f"the certificate cannot be written: {error}; the bundle is {path}") from error
    return written
