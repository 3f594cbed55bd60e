"""A recommendation as data: the replicas, everything that determined them, and the memory for the next one.

The same record feeds status, events, metrics and `explain`. Out of scope: how it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

M = TypeVar("M")

LimitKind = Literal["min", "max", "stabilisation", "pace", "unknown", "off"]
"""min, max: the bounds of spec.scaling. stabilisation: a recent recommendation within the stabilisation window. pace: a policy of
spec.scaling.behavior, or the HPA's default policy. unknown: a signal is missing and the remaining ones would scale down, or all
are missing. off: spec.replicas is 0."""
SignalName = Literal["queueDepth", "gpuUtilization"]


@dataclass(frozen=True)
class SignalProposal:
    """Proposal of one signal."""

    name: SignalName
    target: float
    """Target per replica."""
    value: float | None = None
    """Total for the model; None if it is missing."""
    ratio: float | None = None
    """value / (target x pods that exist)."""
    proposal: int | None = None
    """Proposed replicas; None if the value is missing."""
    tolerated: bool = False
    """Whether the ratio is so close to 1 that the replicas stay."""
    missing: str | None = None
    """Reason for the missing value."""

    def describe(self) -> str:
        """Return for example `queueDepth 78 at 16 per replica needs 5`."""
        if self.value is None:
            return f"{self.name} is unknown ({self.missing})"
        text = f"{self.name} {self.value:.4g} at {self.target:g} per replica"
        return f"{text} is close enough to {self.proposal}" if self.tolerated else f"{text} needs {self.proposal}"


@dataclass(frozen=True)
class RecommendationLimit:
    """A limit that changed the result of the signals."""

    kind: LimitKind
    count: int
    """Replicas after the limit was applied."""

    def describe(self) -> str:
        """Return a phrase to append to the phrases of the terms."""
        return {
            "min": f"minReplicas is {self.count}",
            "max": f"maxReplicas is {self.count}",
            "stabilisation": f"recent recommendations keep it at {self.count}",
            "pace": f"the scaling behavior allows {self.count}",
            "unknown": "while a signal is unknown, the replicas are not lowered, and without any signal they don't change",
            "off": "spec.replicas is 0, which switches scaling off",
        }[self.kind]


@dataclass(frozen=True)
class Reasons:
    """Reasons for the recommended replicas."""

    current: int
    """Replicas before."""
    proposed: int | None
    """Replicas that the signals propose before any limit; None if they were not evaluated or don't count."""
    proposals: tuple[SignalProposal, ...] = ()
    winner: str | None = None
    """Name of the term that determined `wanted`."""
    limits: tuple[RecommendationLimit, ...] = ()
    """Limits in the order in which they took effect."""


@dataclass(frozen=True)
class Recommendation(Generic[M]):
    """Recommended replicas, with the reasons and the memory for the next decision."""

    count: int
    reasons: Reasons
    memory: M
    """Memory for the next decision once the replicas are written (or if they have not changed)."""
    unwritten: M
    """Memory for the next decision if the replicas could not be written."""

    def describe(self) -> str:
        """Return one sentence with numbers."""
        reasons, current = self.reasons, self.reasons.current
        change = "unchanged" if self.count == current else f"{current} before"
        head = f"{self.count} replica{'' if self.count == 1 else 's'} ({change})"
        parts = [proposal.describe() for proposal in reasons.proposals]
        if reasons.winner is not None and len(reasons.proposals) > 1 and reasons.proposed is not None:
            parts.append(f"{reasons.winner} decides")
        parts += [limit.describe() for limit in reasons.limits] or ["no limit applies"]
        return f"{head}: {'; '.join(parts)}"
