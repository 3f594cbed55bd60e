"""Detection of failed rollouts. Pure.

A rollout can fail only while none of the revision's pods is ready. The module `rollout` lists the causes.
"""

from __future__ import annotations

from halcyon.api.conditions import Reason
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects import pods
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.observed import LOAD_FAILURES, REPORTS_TIMEOUT_S, ObservedRollout, RevisionFailure, grace_s
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.render.revision import Revision
from halcyon.render.server import progress_deadline_s


def detect_failure(
    observed: ObservedRollout, requested: Revision, record: RolloutRecord, slot: SlotState, *, unwritten: bool
) -> RevisionFailure | None:
    """Return the reason why a revision without ready pods has failed; None if it hasn't failed.

    `unwritten` is true if the operator has not yet written the Deployment whose pods are reduced to free capacity.
    """
    if observed.count == 0:
        return None
    failure = observed.failure(requested.key, slot)
    too_few_others = sum(observed.ready(key) for key in observed.by_revision if key != requested.key) < observed.count
    if failure and failure.reason in LOAD_FAILURES and too_few_others:
        return failure
    waiting, own_pods = observed.waiting_pod(requested, slot), observed.by_revision.get(requested.key, ())
    if waiting is not None and (waiting.is_certain or all(map(pods.is_unschedulable, own_pods))):
        # The pod itself must have waited too: it may be new, if the Deployment controller was down when capacity was freed.
        has_waited = observed.has_surge_timed_out(waiting) and not unwritten
        is_lost = has_waited and observed.is_due(replacement_due(observed, requested, record))
        return RevisionFailure(Reason.UNSCHEDULABLE, waiting.message) if is_lost else None
    if is_overdue(observed, requested, record, slot):
        if record.reason:
            return RevisionFailure(Reason(record.reason), record.message)
        if failure is None and observed.scope.scaling.settling:
            return None  # the agents may report a more specific reason, but haven't reported yet
        message = f"no pod of the revision was ready within {progress_deadline_s(requested.startup_timeout_s)} s"
        return failure or RevisionFailure(Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    return None


def is_overdue(observed: ObservedRollout, requested: Revision, record: RolloutRecord, slot: SlotState | None) -> bool:
    """Return whether the progress deadline has passed without a ready pod of the revision.

    It has passed in either of these cases:
    - The revision's first pod was scheduled longer ago than the deadline; if none was scheduled, the first was created
      longer ago. This case covers scaling up from 0 replicas, which the Deployment's own deadline doesn't.
    - The Deployment reports an exceeded deadline, and the rollout began longer ago than the deadline. The second part
      is needed because the Deployment's status may still be that of the previous template. The Deployment's own clock
      restarts with each step.

    The deadline does not pass while others keep the pods from starting.
    """
    key = requested.key
    if slot is None or slot.revision != key or observed.ready(key) or observed.is_start_blocked(key, slot):
        return False
    deadline, began, oldest = deadlines(observed, requested, record)
    if observed.is_due(oldest and oldest + deadline):
        return True
    reports_are_in = oldest is None or observed.is_due(oldest + REPORTS_TIMEOUT_S)
    return slot.timed_out and reports_are_in and observed.is_due(began and began + deadline)


def deadlines(
    observed: ObservedRollout, revision: Revision, record: RolloutRecord
) -> tuple[int, float | None, float | None]:
    """Return the progress deadline in seconds, and two times from which it runs, in seconds since the epoch.

    The first time is the start of the rollout, plus the longest time that a pod waited for a node. The second is the
    start of the revision's oldest pod. A time is None if it is unknown.
    """
    began = epoch_seconds(record.began)
    began = began and began + observed.longest_wait_s(revision.key)
    return progress_deadline_s(revision.startup_timeout_s), began, observed.oldest_start(revision.key)


def replacement_due(observed: ObservedRollout, requested: Revision, record: RolloutRecord) -> float | None:
    """Return the time by which a replacement pod must be scheduled, in epoch seconds; None if there is none."""
    since = epoch_seconds(record.replacing)
    return None if since is None else since + grace_s(requested) + observed.surge_timeout_s
