"""A decision as data: the count, everything that made it, and the memory for the next one.

The same record feeds status, events, metrics and `explain`. Not here: how a decision is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

M = TypeVar("M")

LimitKind = Literal["min", "max", "stabilisation", "pace", "unknown", "off"]
"""min, max: the bounds of spec.scaling. stabilisation: a recent recommendation within its window. pace: a policy of
spec.scaling.behavior, or the HPA's own. unknown: a signal is missing and the rest would go down, or all are missing.
off: spec.replicas is 0."""
SignalName = Literal["queueDepth", "gpuUtilization"]


@dataclass(frozen=True)
class Term:
    """What one signal asks for."""

    name: SignalName
    target: float
    """Per replica."""
    value: float | None = None
    """Total for the model; None where it is missing."""
    ratio: float | None = None
    """value / (target x pods that exist)."""
    proposal: int | None = None
    """Count that it asks for; None where it is missing."""
    tolerated: bool = False
    """Whether the ratio is so close to 1 that the count stays."""
    missing: str | None = None
    """Why there is no value."""

    def say(self) -> str:
        """For example `queueDepth 78 at 16 per replica needs 5`."""
        if self.value is None:
            return f"{self.name} is not known ({self.missing})"
        said = f"{self.name} {self.value:.4g} at {self.target:g} per replica"
        return f"{said} is close enough to {self.proposal}" if self.tolerated else f"{said} needs {self.proposal}"


@dataclass(frozen=True)
class RecommendationLimit:
    """Something that changed the count after the signals had spoken."""

    kind: LimitKind
    count: int
    """The count that it left."""

    def say(self) -> str:
        """A phrase that fits behind the terms."""
        return {
            "min": f"minReplicas is {self.count}",
            "max": f"maxReplicas is {self.count}",
            "stabilisation": f"recent recommendations hold it at {self.count}",
            "pace": f"the pace of scaling allows {self.count}",
            "unknown": "nothing goes down, and nothing moves on no signal at all, while a signal is unknown",
            "off": "spec.replicas is 0, which switches scaling off",
        }[self.kind]


@dataclass(frozen=True)
class Reasons:
    """Why the count is what it is."""

    current: int
    """Count before."""
    wanted: int | None
    """What the signals ask for before any limit; None where they were not asked or have no say."""
    terms: tuple[Term, ...] = ()
    winner: str | None = None
    """The term that made `wanted`."""
    limits: tuple[RecommendationLimit, ...] = ()
    """In the order in which they took effect."""


@dataclass(frozen=True)
class Recommendation(Generic[M]):
    """How many replicas, why, and what to remember."""

    count: int
    reasons: Reasons
    memory: M
    """For the next decision, once the count is written (or where it has not changed)."""
    unwritten: M
    """For the next decision where the count could not be written."""

    def say(self) -> str:
        """One sentence with numbers."""
        why, current = self.reasons, self.reasons.current
        change = "unchanged" if self.count == current else f"{current} before"
        head = f"{self.count} replica{'' if self.count == 1 else 's'} ({change})"
        parts = [term.say() for term in why.terms]
        if why.winner is not None and len(why.terms) > 1 and why.wanted is not None:
            parts.append(f"{why.winner} decides")
        parts += [limit.say() for limit in why.limits] or ["limited by nothing"]
        return f"{head}: {'; '.join(parts)}"
