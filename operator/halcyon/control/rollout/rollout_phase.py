"""Phase of a rollout: complete, progressing, blocked for lack of capacity, failed, or rolled back. Pure.

Out of scope: the decision (`rollout`), and what counts as a failure (`rollout_failure`).
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
    seen: ObservedRollout, target: Revision, record: RolloutRecord, slot: SlotState | None, *, returns: bool
) -> tuple[RolloutPhase, RevisionFailure | None]:
    """Return the phase of the rollout to the target revision, and the failure to show with it.

    `returns` is true if the rollout is a rollback.
    """
    there = (
        slot is not None
        and slot.revision == target.key
        and slot.whole
        # If the revision was served, the only change that the controller may not have observed is one in replicas: no rollout.
        and (slot.seen or returns or record.result == RolloutResult.SERVED)
        and not seen.others(target.key)
    )
    failed = RevisionFailure(Reason(record.reason), record.message) if record.ended and record.reason else None
    if returns:
        return (RolloutPhase.ROLLED_BACK if there else RolloutPhase.ROLLING_BACK), failed
    if there and (seen.ready(target.key) or seen.count == 0):
        return RolloutPhase.COMPLETE, None
    if record.result == RolloutResult.FAILED:
        return RolloutPhase.FAILED, failed
    lack = seen.lack(target, slot)
    if lack is not None and seen.lacks_long(lack):
        return RolloutPhase.BLOCKED, RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    return RolloutPhase.PROGRESSING, None if seen.ready(target.key) else seen.why_not(target.key, slot)


def is_freeing_capacity(
    seen: ObservedRollout, target: Revision, speed: SurgeSettings, slots: tuple[SlotAllocation, ...]
) -> bool:
    """Return whether pods of other revisions are being removed, one at a time, to free capacity for the target."""
    if speed.strategy != "Replace":
        return False
    ready = sum(seen.ready_in(placed.slot) for placed in slots)
    return not seen.ready(target.key) or (len(slots) > 1 and ready >= seen.count - speed.max_unavailable)
