"""Detection of failed rollouts. Pure.

A rollout can fail only while none of the revision's pods is ready. The module `rollout` lists the causes.
"""

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
    """Return the reason why a revision without ready pods has failed; None if it hasn't failed.

    `unwritten` is true if the operator has not yet written the Deployment whose pods are reduced to free capacity.
    """
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
    # The pod itself must have waited too: it may be new, if the Deployment controller was down when capacity was freed.
    if lack is not None and seen.lacks_long(lack):
        return RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    if is_overdue(seen, asked, record, slot):
        if record.reason:
            return RevisionFailure(Reason(record.reason), record.message)
        if trouble is None and seen.view.scaling.settling:
            return None  # the agents may report a more specific reason, but haven't reported yet
        within = f"no pod of the revision was ready within {progress_deadline_s(asked.startup_timeout_s)} s"
        return trouble or RevisionFailure(Reason.PROGRESS_DEADLINE_EXCEEDED, within)
    return None


def is_overdue(seen: ObservedRollout, asked: Revision, record: RolloutRecord, slot: SlotState | None) -> bool:
    """Return whether the progress deadline has passed without a ready pod of the revision.

    It has passed in either of these cases:
    - The revision's oldest pod was scheduled longer ago than the deadline. This is needed if the replicas were 0, because the
      Deployment then hasn't seen the revision's pods.
    - The Deployment reports an exceeded deadline, and the rollout began longer ago than the deadline. The second part is needed
      because right after a change of the template the Deployment's status may still be about the previous one. The
      Deployment's own clock restarts with each step.

    Time counts in neither case while pods were unschedulable, or while others kept them from starting.
    """
    if slot is None or slot.revision != asked.key or seen.ready(asked.key) or seen.is_held_up(asked.key, slot):
        return False
    deadline, began, oldest = deadlines(seen, asked, record)
    if seen.is_due(oldest and oldest + deadline):
        return True
    reports_are_in = oldest is None or seen.is_due(oldest + REPORTS_TIMEOUT_S)
    return slot.timed_out and reports_are_in and seen.is_due(began and began + deadline)


def deadlines(seen: ObservedRollout, asked: Revision, record: RolloutRecord) -> tuple[int, float | None, float | None]:
    """Return the progress deadline, in seconds, and two times from which it counts, in seconds since the epoch.

    The first time is the start of the rollout, plus the longest time that a pod waited for a node. The second is the
    start of the revision's oldest pod. A time is None if it is unknown.
    """
    began = epoch_seconds(record.began)
    began = began and began + seen.waited_s(asked.key)
    return progress_deadline_s(asked.startup_timeout_s), began, seen.oldest(asked.key)


def replacement_due(seen: ObservedRollout, asked: Revision, record: RolloutRecord) -> float | None:
    """Return the time by which a replacement pod must be scheduled, in seconds since the epoch.

    Return None if there is none.
    """
    since = epoch_seconds(record.replacing)
    return None if since is None else since + grace_s(asked) + seen.surge_timeout_s
