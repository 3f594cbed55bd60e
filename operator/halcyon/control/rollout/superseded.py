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
from halcyon.control.rollout.canary_progress import ABORT, wish
from halcyon.control.rollout.observed import ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


def left(seen: ObservedRollout, others: Iterable[Revision], asked: Revision, beside: Slot) -> Iterator[Revision]:
    """Yield each revision whose rollout record changes, with its new record. `beside` is the slot of a canary."""
    before = {r.key: RolloutRecord.of(r) for r in seen.view.revisions}
    there = seen.slots.get(beside)
    for other in others:
        after = RolloutRecord.of(other).leave(seen.view.now, asked.key)
        is_canary = there is not None and there.revision == other.key and after.result == RolloutResult.SUPERSEDED
        if is_canary and (found := _found_bad(seen, other, asked)) is not None:
            after = after.fail(seen.view.now, found.reason, found.message).leave(seen.view.now, asked.key)
        if after != before[other.key]:
            yield after.on(other)


def _found_bad(seen: ObservedRollout, canary: Revision, asked: Revision) -> RevisionFailure | None:
    """Return the reason why a user or the analysis has rejected a superseded canary; None if neither has."""
    view, canary_result = seen.view, seen.view.canary
    name = names.revision(view.key.name, canary.key)
    if wish(view.meta.get("annotations") or {}, canary.key, name) == "abort":
        said = f"annotation {ABORT} aborted the canary after the spec had changed to revision {asked.key}"
        return RevisionFailure(Reason.CANARY_ABORTED, said)
    is_judged = (seen.spec.rollout.canary or Canary()).analysis.mode == "Enabled"
    if (
        is_judged
        and canary_result is not None
        and canary_result.revision == canary.key
        and canary_result.action == "rollback"
    ):
        return RevisionFailure(Reason.CANARY_ANALYSIS_FAILED, canary_result.why)
    return None
