"""octavo-conformance: proves that a platform of Octavo is right.

Read README.md beside pyproject.toml for the design. To write checks: `check` (what one is), `target` (what it drives),
`probe` (one op as a model), `steps` (work for a device), `judge` (oracles, references, rules).
"""

from __future__ import annotations

from importlib import metadata

SUITE = "1.0"
"""Version of the catalogue: what is locked in checks.lock belongs to it. Inputs depend on it, so it changes only when
a check does."""


def suite_version() -> str:
    """The catalogue's version, which seeds and certificates name."""
    return SUITE


def distribution_version() -> str:
    """The installed version of this distribution; ``0+source`` where it runs from a tree that was never installed."""
    try:
        return metadata.version("octavo-conformance")
    except metadata.PackageNotFoundError:
        return "0+source"
