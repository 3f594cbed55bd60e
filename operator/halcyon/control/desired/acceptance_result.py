"""The result of the checks of a spec."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason


@dataclass(frozen=True)
class Acceptance:
    """Whether the current spec was accepted, with the reason and message for the condition Accepted."""

    accepted: bool
    reason: Reason
    message: str
