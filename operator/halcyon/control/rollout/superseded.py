"""Revisions that the spec doesn't ask for any more: what becomes of their trails. Pure.

| what it was                 | what is said of it          | its trail                                    |
| --------------------------- | --------------------------- | -------------------------------------------- |
| on its way                  | -                           | superseded                                   |
| on its way, or superseded,  | a person's abort, or the    | failed: its pods go at once, and it may be   |
| with a slot of its own      | analysis' rollback          | tried again where the spec asks for it again |
| served, or failed           | -                           | as it was; a failure is forgiven             |

Not here: where their pods are (`placing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halcyon.api.conditions import Reason
from halcyon.api.spec.rollout import Canary
from halcyon.control.rollout.canary_steps import ABORT, wish
from halcyon.control.rollout.observed import ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


def left(seen: ObservedRollout, others: Iterable[Revision], asked: Revision, beside: Slot) -> Iterator[Revision]:
    """Those whose trail changes; `beside` is the slot of a canary."""
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
    """Why a canary that was left must not serve until others can; None where nobody says so."""
    view, verdict = seen.view, seen.view.canary
    name = names.revision(view.key.name, canary.key)
    if wish(view.meta.get("annotations") or {}, canary.key, name) == "abort":
        said = f"aborted by annotation {ABORT} after the spec had asked for revision {asked.key}"
        return RevisionFailure(Reason.CANARY_ABORTED, said)
    is_judged = (seen.spec.rollout.canary or Canary()).analysis == "On"
    if is_judged and verdict is not None and verdict.revision == canary.key and verdict.action == "rollback":
        return RevisionFailure(Reason.CANARY_WORSE, verdict.why)
    return None
