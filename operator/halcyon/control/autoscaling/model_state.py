"""State that the autoscaler keeps for each model from one decision to the next."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from halcyon.control.objects.actuator import Actuator
from halcyon.kube.kinds import Key
from halcyon.scaling.policy import decision as decisions
from halcyon.scaling.policy.decision import Change, Decision

MOVED_FOR_S = 2.0
"""Seconds for which a value must differ from the published one before it is published. If the new value also changes
the replicas within this time, one status write contains both."""


@dataclass(slots=True)
class PublishedDecision:
    """Decision that was last published in the status. Times are monotonic, in seconds."""

    at: float
    decision: Decision
    external_writer: str
    moved: float = math.inf
    """Time since which the current values have differed from the published ones; infinite if they don't differ."""


@dataclass(slots=True)
class ModelState:
    """State of one autoscaled model. Times are monotonic, in seconds."""

    key: Key
    due: float
    """Time of the next decision, unless a report causes an earlier one."""
    uid: str = ""
    """uid of the model's object in the last decision; empty before the first one."""
    actuator: Actuator = Actuator.NONE
    """Component that writes the model's replicas. It is NONE until a reconcile has set it (`Autoscaler.planned`)."""
    has_report: bool = False
    """Whether an agent has reported since the last decision."""
    confirmed: bool = False
    """Whether a report since the last decision confirms the growth in the previous report. The next decision is then
    made at once."""
    attempted_at: float = -math.inf
    """Time of the last attempt to make a decision, including failed ones."""
    decided: float = -math.inf
    """Time at which `decision` was made."""
    decision: Decision | None = None
    first_attempt_at: float = math.inf
    """Time of the first attempt to make a decision; infinite before it. The age of a missing decision begins there."""
    external_writer: str = ""
    """Message about another writer of the replicas; empty if there is none."""
    shown: PublishedDecision | None = None
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=decisions.MAX_CHANGES))
    """Last changes to the desired replicas, newest first."""
    raised: int = 0
    """Number of increases of the desired replicas, counted while this replica of the operator is the leader."""
    lowered: int = 0
    """Number of decreases of the desired replicas, counted while this replica of the operator is the leader."""
    writing: asyncio.Task[None] | None = None
    """Task that writes the replicas; None if no write is in progress."""
    is_status_held: bool = False
    """Whether a status update waits until the replicas are written."""

    @property
    def age_began_at(self) -> float:
        """Time at which the current decision was made, or the first was attempted if there is none yet."""
        return self.first_attempt_at if self.decision is None else self.decided

    def must_be_published(self, decision: Decision, external_writer: str, now: float, every_s: float) -> bool:
        """Return whether the decision must be published in the status now.

        Changes of the replicas and of the message about another writer are published at once. The same applies if all
        signals become unknown or known, and if a missing signal becomes known. Changes of other values must have lasted
        `MOVED_FOR_S`, and are published at least `every_s` seconds after the last publication.
        """
        published = self.shown
        if published is None:
            return True
        before = published.decision
        shown = (before.current, before.desired, bool(before.unknown), published.external_writer)
        if (decision.current, decision.desired, bool(decision.unknown), external_writer) != shown:
            return True
        if decisions.has_more_signals(before, decision):
            return True
        published.moved = min(now, published.moved) if decisions.has_changed(before, decision) else math.inf
        return now - published.at >= every_s and now - published.moved >= MOVED_FOR_S

    def may_be_decided(self, now: float, spacing_s: float) -> bool:
        """Return whether a new report may cause a decision now.

        The last attempt must be at least `spacing_s` seconds ago, unless the report confirms growth or the model has 0
        replicas. At 0 replicas, a client may be waiting, and reports are rare.
        """
        is_empty = self.decision is not None and self.decision.current == 0
        return self.confirmed or is_empty or now - self.attempted_at >= spacing_s

    def desired_of(self, decision: Decision) -> int | None:
        """Return the desired replicas of a decision, or the current replicas if the HPA decides."""
        return decision.current if decision.desired is None and self.actuator is Actuator.HPA else decision.desired


def ages_s(models: Mapping[Key, ModelState], now: float) -> Iterator[float]:
    """Yield the age of each model's current decision, in seconds. Models for which none was attempted are skipped."""
    return (now - model.age_began_at for model in models.values() if math.isfinite(model.age_began_at))
