"""The lattice of outcomes. There is no skip."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Status(IntEnum):
    """How a case, a check or a run ended, from good to bad; of several the worst counts."""

    PASS = 0
    """The rule holds, and each wrong answer that was tried is rejected by it."""
    REFUSED_OK = 1
    """The platform does not declare the feature, and refuses it as the contract says."""
    INFO = 2
    """Published, not judged."""
    NOT_RUN = 3
    """Left out by a selection or a budget."""
    FAIL = 4
    """The candidate is wrong, crashed, hung, or does what it does not declare."""
    ERROR = 5
    """The suite itself is at fault: a check gave no verdict, a case is vacuous, the harness broke."""

    @classmethod
    def worst(cls, statuses: Iterable[Status]) -> Status:
        """The worst of several; nothing at all is an ERROR, since a check that says nothing proves nothing."""
        return max(statuses, default=cls.ERROR)


GOOD = frozenset({Status.PASS, Status.REFUSED_OK, Status.INFO})
"""What a certificate may consist of."""
