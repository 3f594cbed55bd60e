"""State that the autoscaler keeps of one model from one decision to the next."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from halcyon.control.objects.actuator import Actuator
from halcyon.kube.kinds import Key
from halcyon.scaling.policy import decision
from halcyon.scaling.policy.decision import Change, Decision

MOVED_FOR_S = 2.0
"""Delay before moved values are published, so that a replica change that follows from them is published with them."""


@dataclass(slots=True)
class PublishedDecision:
    """The decision published last in the status. Times are monotonic, in seconds."""

    at: float
    verdict: Decision
    rival: str
    moved: float = math.inf
    """Time since which values differ from the published ones."""


@dataclass(slots=True)
class ModelState:
    """State of one autoscaled model. Times are monotonic, in seconds."""

    key: Key
    due: float
    """Latest time of the next decision."""
    actuator: Actuator = Actuator.NONE
    """What writes its replicas; NONE until a reconcile has set it (`Autoscaler.planned`)."""
    has_report: bool = False
    """Whether an agent has reported since the last decision."""
    confirmed: bool = False
    """Whether that report confirms the one right before it: growth that counts now."""
    tried: float = -math.inf
    """Time of the last attempt to decide, successful or not."""
    decided: float = -math.inf
    """Time of the decision in `verdict`."""
    verdict: Decision | None = None
    rival: str = ""
    """A sentence that names another writer of the replicas; empty if there is none."""
    shown: PublishedDecision | None = None
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=decision.MAX_CHANGES))
    """Newest first."""
    raised: int = 0
    """Number of increases of the desired replicas while this operator replica led."""
    lowered: int = 0
    """Number of decreases of the same."""
    writing: asyncio.Task[None] | None = None
    untold: bool = False
    """Whether a status update waits for the replicas to be written first."""

    def is_news(self, made: Decision, rival: str, now: float, every_s: float) -> bool:
        """Return whether the status needs an update: at once if replicas change; else if a value stays moved, and not too often."""
        published = self.shown
        if published is None:
            return True
        before = published.verdict
        if (made.current, made.desired, bool(made.unknown), rival) != (
            before.current,
            before.desired,
            bool(before.unknown),
            published.rival,
        ):
            return True
        published.moved = min(now, published.moved) if decision.has_changed(before, made) else math.inf
        return now - published.at >= every_s and now - published.moved >= MOVED_FOR_S

    def may_be_decided(self, now: float, spacing_s: float) -> bool:
        """Return whether its agents' reports may be evaluated now.

        Sooner if a report confirms growth, and at zero replicas: a client waits then, and agents report little.
        """
        is_empty = self.verdict is not None and self.verdict.current == 0
        return self.confirmed or is_empty or now - self.tried >= spacing_s

    def asked(self, made: Decision) -> int | None:
        """Return the desired replicas of a decision; if an HPA decides, the replicas that it has written."""
        return made.current if made.desired is None and self.actuator is Actuator.HPA else made.desired


def ages_s(models: Mapping[Key, ModelState], now: float) -> Iterator[float]:
    """Yield the age of each model's decision in seconds, for those that have one."""
    return (now - model.decided for model in models.values() if model.verdict is not None)
