"""Rollout decision of one reconcile, as a data class."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from halcyon.control.rollout.canary_progress import Advance
from halcyon.control.rollout.observed import RevisionFailure
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.rollout.slot_allocation import SlotAllocation
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings
from halcyon.render.names import SLOT_A, Slot
from halcyon.render.revision import Revision


class RolloutPhase(StrEnum):
    """Phase of a rollout."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"
    """Pods of the new revision have been unschedulable for surgeTimeout."""
    FAILED = "Failed"
    """The revision has failed and stays. There is no revision to roll back to, or spec.rollout.onFailure is Stay."""
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True)
class RolloutPlan:
    """Rollout decision of one reconcile, with the data about it that the status shows."""

    requested: Revision
    """Revision that the accepted spec requests."""
    target: Revision
    """Revision that the servers run. It is `requested`, or the previous revision after a failure."""
    phase: RolloutPhase
    slots: tuple[SlotAllocation, ...]
    """Desired state of each slot. The first one is the home slot."""
    pace: SurgeSettings = SURGE
    failure: RevisionFailure | None = None
    """Reason why the requested revision has failed or is blocked, or why its pods aren't ready; None if there is no
    such reason."""
    overdue: bool = False
    """Whether the progress deadline has passed without a ready pod of the requested revision."""
    has_time: bool = False
    """Whether a pod that was unschedulable before is now starting, and is still within its deadline. If so, the
    exceeded deadline in the Deployment's status is ignored."""
    model: str = ""
    """Name of the model to which requests are routed."""
    good: Revision | None = None
    """Revision that was served last, apart from the requested one; None if no other has ever been served."""
    canary: Advance | None = None
    """State of the canary; None if no canary is in progress."""
    changed: tuple[Revision, ...] = ()
    """Other revisions whose rollout record changes, with the new records."""
    requeue_s: float | None = None
    """Requeue delay until the next change that depends only on time, in seconds; None if there is none."""

    @property
    def record(self) -> RolloutRecord:
        """Rollout record of the requested revision."""
        return RolloutRecord.of(self.requested)

    @property
    def rollback_revision(self) -> Revision | None:
        """Revision to keep for a rollback. It is `good` until the requested revision is served; then it is None."""
        return None if self.record.result == RolloutResult.SERVED else self.good

    @property
    def home(self) -> Slot:
        """The home slot, which runs all servers except those of a canary."""
        return self.slots[0].slot if self.slots else SLOT_A
