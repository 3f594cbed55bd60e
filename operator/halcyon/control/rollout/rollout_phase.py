"""Phase of a rollout: complete, progressing, blocked for lack of capacity, failed, or rolled back. Pure.

Out of scope: the decision (`rollout`), and the definition of a failure (`rollout_failure`).
"""

from __future__ import annotations

from halcyon.api.conditions import Reason
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.observed import ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.control.rollout.slot_allocation import SlotAllocation
from halcyon.control.rollout.surge_strategy import SurgeSettings
from halcyon.render.revision import Revision


def phase_of(
    observed: ObservedRollout, target: Revision, record: RolloutRecord, slot: SlotState | None, *, is_rollback: bool
) -> tuple[RolloutPhase, RevisionFailure | None]:
    """Return the phase of the rollout to the target revision, and the failure to show with it.

    `is_rollback` is true if the rollout is a rollback.
    """
    is_in_place = (
        slot is not None
        and slot.revision == target.key
        and slot.is_updated
        # If the revision was served, the only change that the controller may not have observed is one in replicas: no rollout.
        and (slot.is_observed or is_rollback or record.result == RolloutResult.SERVED)
        and not observed.others(target.key)
    )
    has_failed = record.ended and record.reason
    recorded_failure = RevisionFailure(Reason(record.reason), record.message) if has_failed else None
    if is_rollback:
        return (RolloutPhase.ROLLED_BACK if is_in_place else RolloutPhase.ROLLING_BACK), recorded_failure
    if is_in_place and (observed.ready(target.key) or observed.count == 0):
        return RolloutPhase.COMPLETE, None
    if record.result == RolloutResult.FAILED:
        return RolloutPhase.FAILED, recorded_failure
    unschedulable = observed.unschedulable_pod(target, slot)
    if unschedulable is not None and observed.has_surge_timed_out(unschedulable):
        return RolloutPhase.BLOCKED, RevisionFailure(Reason.UNSCHEDULABLE, unschedulable.message)
    return RolloutPhase.PROGRESSING, None if observed.ready(target.key) else observed.failure(target.key, slot)


def is_freeing_capacity(
    observed: ObservedRollout, target: Revision, pace: SurgeSettings, slots: tuple[SlotAllocation, ...]
) -> bool:
    """Return whether pods of other revisions are being removed, one at a time, to free capacity for the target."""
    if pace.strategy != "Replace":
        return False
    ready = sum(observed.ready_in(allocation.slot) for allocation in slots)
    return not observed.ready(target.key) or (len(slots) > 1 and ready >= observed.count - pace.max_unavailable)
