"""The result of the acceptance checks of a spec."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason


@dataclass(frozen=True)
class Acceptance:
    """Result of the acceptance checks of the current spec. It has the reason and the message for the condition Accepted."""

    accepted: bool
    reason: Reason
    message: str
