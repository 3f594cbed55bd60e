"""Failure of a revision's rollout, while none of its pods is ready; by the list in `rollout`. Pure."""

from __future__ import annotations

from halcyon.api.conditions import Reason
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.observed import CANT_LOAD, REPORTS_TIMEOUT_S, ObservedRollout, RevisionFailure, grace_s
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.render.revision import Revision
from halcyon.render.server import progress_deadline_s


def failure(
    seen: ObservedRollout, asked: Revision, record: RolloutRecord, slot: SlotState, *, unwritten: bool
) -> RevisionFailure | None:
    """Return why the revision has failed, while none of its pods is ready; None if it hasn't."""
    if seen.count == 0:
        return None
    trouble = seen.why_not(asked.key, slot)
    given_up = sum(seen.ready(key) for key in seen.of if key != asked.key) < seen.count
    if trouble and trouble.reason in CANT_LOAD and given_up:
        return trouble
    lack = seen.lack(asked, slot)
    if lack is not None and (
        unwritten or not record.replacing or not seen.is_due(replacement_due(seen, asked, record))
    ):
        return None
    # Its own wait as well: if the Deployment controller was down, the pod that is to take the freed capacity is brand-new.
    if lack is not None and seen.lacks_long(lack):
        return RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    if is_overdue(seen, asked, record, slot):
        if record.reason:
            return RevisionFailure(Reason(record.reason), record.message)
        if trouble is None and seen.view.scaling.settling:
            return None  # no report yet from the agents, which know the reason
        within = f"no pod of the revision was ready within {progress_deadline_s(asked.startup_timeout_s)} s"
        return trouble or RevisionFailure(Reason.PROGRESS_DEADLINE_EXCEEDED, within)
    return None


def is_overdue(seen: ObservedRollout, asked: Revision, record: RolloutRecord, slot: SlotState | None) -> bool:
    """Return whether the progress deadline has passed without a ready pod of the revision.

    The Deployment's own clock restarts with each step, and right after a change of its template it may still be about the previous one.
    If the replicas were 0, the Deployment has not seen the revision's pods; then a pod's time since scheduling is the measure. Time that
    pods spent unschedulable is no failure, and counts in neither.
    """
    if slot is None or slot.revision != asked.key or seen.ready(asked.key):
        return False
    deadline, began, oldest = deadlines(seen, asked, record)
    if seen.is_due(oldest and oldest + deadline):
        return True
    reports_are_in = oldest is None or seen.is_due(oldest + REPORTS_TIMEOUT_S)
    return slot.timed_out and reports_are_in and seen.is_due(began and began + deadline)


def deadlines(seen: ObservedRollout, asked: Revision, record: RolloutRecord) -> tuple[int, float | None, float | None]:
    """Return the progress deadline in seconds, the rollout's start plus the wait for scheduling, and the start of its first pod."""
    began = epoch_seconds(record.began)
    began = began and began + seen.waited_s(asked.key)
    return progress_deadline_s(asked.startup_timeout_s), began, seen.oldest(asked.key)


def replacement_due(seen: ObservedRollout, asked: Revision, record: RolloutRecord) -> float | None:
    """Return the time by which a pod must have been scheduled in place of the one that was removed for it; None if none was."""
    since = epoch_seconds(record.replacing)
    return None if since is None else since + grace_s(asked) + seen.surge_wait_s
