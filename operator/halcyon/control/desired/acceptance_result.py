"""The result of the checks of a spec: accepted, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason


@dataclass(frozen=True)
class Acceptance:
    """Whether the current spec was accepted, and if not, why."""

    accepted: bool
    reason: Reason
    message: str
