"""What a plugin's code was: a hash of its files, so that a certificate names what it is about."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from octavo.platform import Platform


def plugin_digest(platform: Platform) -> str:
    """SHA-256 over every file of the top-level package that the platform's class is from, but for compiled Python."""
    top = type(platform).__module__.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        return ""
    roots = [Path(p) for p in spec.submodule_search_locations or ()] or [Path(str(spec.origin))]
    whole = hashlib.sha256()
    for root in roots:
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for path in files:
            if "__pycache__" not in path.parts:
                whole.update(path.relative_to(root.parent).as_posix().encode() + b"\0")
                whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()
