"""Recommendation of the HPA's rules as data: the replicas, the reasons, and the memory for the next recommendation.

Status, events, metrics and `halcyon explain` all use this data. Out of scope: how a recommendation is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from halcyon.scaling.lazy_text import plain

M = TypeVar("M")

LimitKind = Literal["min", "max", "stabilisation", "pace", "unknown", "off"]
"""Cause of a limit. `min` and `max`: minReplicas or maxReplicas. `stabilisation`: an earlier recommendation within the
stabilisation window. `pace`: a policy of spec.scaling.behavior, or the HPA's default policy. `unknown`: all signals are
missing, or some are missing and the others propose fewer replicas. `off`: spec.replicas is 0."""
SignalName = Literal["queueDepth", "gpuUtilization", "concurrency", "metric"]


@dataclass(frozen=True)
class SignalProposal:
    """Replicas that one signal proposes, with its value and target."""

    name: SignalName
    target: float
    """Target value of the signal per replica."""
    value: float | None = None
    """Value of the signal for the whole model; None if it is missing."""
    ratio: float | None = None
    """Ratio of the signal's value to its target times the number of existing pods; None if the value is missing."""
    proposal: int | None = None
    """Number of replicas that the signal proposes; None if its value is missing."""
    tolerated: bool = False
    """Whether the ratio is within the tolerance around 1, at which the replicas don't change."""
    missing: str | None = None
    """Reason why the value of the signal is missing; None if it is known."""

    def describe(self) -> str:
        """Describe the proposal as a phrase, for example `queueDepth 78 at 16 per replica needs 5`."""
        if self.value is None:
            return f"{self.name} is unknown ({self.missing})"
        text = f"{self.name} {plain(self.value)} at {plain(self.target, 15)} per replica"
        return f"{text} is close enough to {self.proposal}" if self.tolerated else f"{text} needs {self.proposal}"


@dataclass(frozen=True)
class RecommendationLimit:
    """Limit that changed the replicas proposed by the signals, or kept the replicas unchanged."""

    kind: LimitKind
    count: int
    """Replicas after applying the limit."""

    def describe(self) -> str:
        """Describe the limit as a phrase, for example `the maximum is 8`."""
        return {
            "min": f"the minimum is {self.count}",
            "max": f"the maximum is {self.count}",
            "stabilisation": f"recent recommendations keep the replicas at {self.count}",
            "pace": f"the scaling behavior allows {self.count}",
            "unknown": "while a signal is unknown, the replicas are not lowered, and without any signal they don't change",
            "off": "spec.replicas is 0, which switches scaling off",
        }[self.kind]


@dataclass(frozen=True)
class Reasons:
    """Reasons for the recommended replicas."""

    current: int
    """Replicas before the recommendation."""
    proposed: int | None
    """Replicas that the signals propose before any limit; None if the signals were not evaluated or were not used."""
    proposals: tuple[SignalProposal, ...] = ()
    winner: str | None = None
    """Name of the signal that determined `proposed`."""
    limits: tuple[RecommendationLimit, ...] = ()
    """Limits that changed the replicas, in the order in which they were applied."""


@dataclass(frozen=True)
class Recommendation(Generic[M]):
    """Recommended replicas, with the reasons and the memory for the next decision."""

    count: int
    reasons: Reasons
    memory: M
    """Memory for the next decision if the recommended replicas were written or there was no change."""
    unwritten: M
    """Memory for the next decision if the recommended replicas could not be written."""

    def describe(self) -> str:
        """Describe the recommendation and its reasons in one sentence with numbers."""
        reasons, current = self.reasons, self.reasons.current
        change = "unchanged" if self.count == current else f"{current} before"
        head = f"{self.count} replica{'' if self.count == 1 else 's'} ({change})"
        parts = [proposal.describe() for proposal in reasons.proposals]
        if reasons.winner is not None and len(reasons.proposals) > 1 and reasons.proposed is not None:
            parts.append(f"{reasons.winner} decides")
        parts += [limit.describe() for limit in reasons.limits] or ["no limit applies"]
        return f"{head}: {'; '.join(parts)}"
