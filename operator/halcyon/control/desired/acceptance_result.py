"""Result of the checks that decide whether a spec is accepted."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.api.conditions import Reason


@dataclass(frozen=True)
class Acceptance:
    """Result of the acceptance checks of a spec, with the reason and the message for the Accepted condition."""

    accepted: bool
    reason: Reason
    message: str
