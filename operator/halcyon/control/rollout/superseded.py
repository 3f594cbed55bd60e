"""Rollout records of revisions that the spec no longer requests. Pure.

Out of scope: the pods of such revisions (`slot_allocation`).
"""

# | state of the revision       | canary analysis             | its rollout record                           |
# | --------------------------- | --------------------------- | -------------------------------------------- |
# | in progress                 | -                           | superseded                                   |
# | in progress or superseded,  | aborted by a user, or       | failed: its pods are removed at once, and it |
# | with pods in a slot         | rejected by the analysis    | is tried again if the spec requests it again |
# | served, or failed           | -                           | unchanged; after a failure it may be retried |

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halcyon.api.conditions import Reason
from halcyon.api.spec.rollout import Canary
from halcyon.control.rollout.canary_progress import ABORT, current_request
from halcyon.control.rollout.observed import ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


def superseded_records(
    observed: ObservedRollout, others: Iterable[Revision], requested: Revision, canary_slot: Slot
) -> Iterator[Revision]:
    """Yield each revision whose rollout record changes, with its new record."""
    before, now = {r.key: RolloutRecord.of(r) for r in observed.scope.revisions}, observed.scope.now
    slot = observed.slots.get(canary_slot)
    for other in others:
        after = RolloutRecord.of(other).leave(now, requested.key)
        is_canary = slot is not None and slot.revision == other.key and after.result == RolloutResult.SUPERSEDED
        if is_canary and (rejection := _rejection(observed, other, requested)) is not None:
            after = after.fail(now, rejection.reason, rejection.message).leave(now, requested.key)
        if after != before[other.key]:
            yield after.on(other)


def _rejection(observed: ObservedRollout, canary: Revision, requested: Revision) -> RevisionFailure | None:
    """Return the reason why a user or the analysis has rejected a superseded canary; None if neither has."""
    scope, canary_result = observed.scope, observed.scope.canary
    name = names.revision(scope.key.name, canary.key)
    if current_request(scope.meta, RolloutRecord.of(canary), canary.key, name)[0] == "abort":
        message = f"the annotation {ABORT} aborted the canary after the spec had changed to revision {requested.key}"
        return RevisionFailure(Reason.CANARY_ABORTED, message)
    is_judged = (observed.spec.rollout.canary or Canary()).analysis.mode == "Enabled"
    if not is_judged or canary_result is None or canary_result.revision != canary.key:
        return None
    is_rejected = canary_result.action == "rollback"
    return RevisionFailure(Reason.CANARY_ANALYSIS_FAILED, canary_result.why) if is_rejected else None
