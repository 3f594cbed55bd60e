"""What the campaigns have found in the product, and their false alarms. Both are shown in docs/quality/faults.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A divergence that was a mistake of the product, and is mended."""

    what: str
    how: str
    """The plan that has found it."""
    test: str
    """Path of the test that keeps it."""


@dataclass(frozen=True)
class FalseAlarm:
    """A kind of divergence that was a mistake of the tests."""

    what: str
    plans: int
    """Number of plans that it has affected."""


FOUND: tuple[Finding, ...] = ()
FALSE_ALARMS: tuple[FalseAlarm, ...] = ()
