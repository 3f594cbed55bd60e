"""Rollouts: which revision the servers run, how its pods replace those of another one, and when it has failed. Pure.

Each reconcile derives the decision from the current state: the slots' Deployments, their pods, and the rollout records.
Out of scope: surge settings (`surge_strategy`), the steps of a canary (`canary_progress`), the distribution of pods
over slots (`slot_allocation`), and the status (`control/status/rollout.py`).

A revision fails if none of its pods is ready and one of these is true:
- One of its pods reports that it can't load the model, and fewer pods of other revisions are ready than desired. It fails at once.
- A pod was removed for the revision, and the revision's pod is still unschedulable surgeTimeout after that pod's end.
- Its oldest pod is older than the progress deadline, or the Deployment has made no progress within the deadline. With Surge a revision
  doesn't fail for lack of capacity, because the old pods serve while it waits.
After one of its pods was ready, only a user or the canary analysis ends a rollout: a rollback would be no safer than
the rollout.
"""

# requested revision   onFailure   another revision was served before   the servers run
# has not failed       -           -                                    the requested revision
# has failed           Stay        -                                    the requested revision
# has failed           Rollback    no                                   the requested revision, as there is none to roll back to
# has failed           Rollback    yes                                  the revision that was served before

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec
from halcyon.api.spec.rollout import Canary
from halcyon.control.objects import pods
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.canary_progress import Advance, advance, wish
from halcyon.control.rollout.observed import CANT_LOAD, REPORTS_TIMEOUT_S, ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_failure import deadlines, failure, is_overdue, replacement_due
from halcyon.control.rollout.rollout_phase import is_freeing_capacity, phase_of
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, away, home, last_good
from halcyon.control.rollout.sequence_models import keeps_state
from halcyon.control.rollout.slot_allocation import canary_slots, lone_slots
from halcyon.control.rollout.superseded import left
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings, pace
from halcyon.control.state.scope import Scope
from halcyon.kube.kinds import Object
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision
from halcyon.render.server import progress_deadline_s

SOON_S = 0.5
"""Minimum requeue delay before a change that depends only on time, in seconds."""
POLL_REQUEUE_S = 5.0
"""Requeue delay while a canary is in progress, in seconds. The canary analysis must be polled, because requests don't
trigger reconciles."""


@dataclass(frozen=True)
class _Placement:
    """Slots of a rollout, and the other revisions that matter for it."""

    home: Slot
    """The home slot, which runs all servers except those of a canary."""
    place: Slot
    """Slot of the requested revision. It is the home slot, or the other slot if the revision is a canary."""
    is_canary: bool
    good: Revision | None
    """Newest revision that was ever served, apart from the requested one; None if there is none."""
    back: Revision | None
    """Revision to which a failed rollout rolls back. It is `good`, or None if the failed revision stays."""
    changed: tuple[Revision, ...]
    """Other revisions whose rollout record changes, with the new records."""
    known: Mapping[str, Revision]
    """All revisions except the requested one, by key."""


@dataclass(frozen=True)
class _Course:
    """Decision on how the rollout of the requested revision continues."""

    record: RolloutRecord
    """Rollout record of the requested revision."""
    step: Advance | None
    """State of the canary after this evaluation; None if no canary is in progress."""
    target: Revision
    """Revision that the servers run."""
    stays: Slot
    """Slot in which the target revision runs."""
    speed: SurgeSettings


def decide(view: Scope, spec: Spec, asked: Revision, deployments: Mapping[Slot, Object]) -> RolloutPlan:
    """Return the rollout plan: which revision the servers run, and the pods of each slot.

    `deployments` are the ModelDeployment's server Deployments, by slot. The steps of the decision are:

    1. Determine the slot of the requested revision. 2. Update its rollout record from the observed state, and choose
    the target revision. 3. Decide whether old pods are removed first to free capacity. 4. Allocate pods to the slots.
    """
    seen = ObservedRollout.at(view, spec, deployments)
    placed = _placement(seen, asked)
    there = seen.slots.get(placed.place)
    if placed.is_canary and placed.good is not None and there is not None and there.revision != asked.key:
        return _waiting(seen, asked, placed, placed.good)
    routed = placed.good.model if placed.good else asked.model
    unwritten = (
        _keeps_all(seen, placed.home)
        if placed.is_canary
        else _is_unwritten(seen, asked, placed.place, known=placed.known, routed=routed)
    )
    course = _course(seen, asked, placed, unwritten=unwritten)
    if course.step is not None and placed.good is not None and not seen.count:
        idle = RevisionFailure(Reason.SCALED_TO_ZERO, "the canary continues when the model has replicas again")
        return replace(_waiting(seen, asked, placed, placed.good), trouble=idle)
    course = _with_replacement(seen, asked, placed, course, unwritten=unwritten)
    return _planned(seen, asked, placed, course)


def _placement(seen: ObservedRollout, asked: Revision) -> _Placement:
    revisions, at_home = seen.view.revisions, home(seen.view.revisions)
    others = [_seen_to_serve(seen, r, at_home) for r in revisions if r.key != asked.key]
    good = last_good(others, asked)
    changed = tuple(left(seen, others, asked, away(at_home)))
    is_canary = _is_canary(seen, asked, good, at_home)
    return _Placement(
        home=at_home,
        place=away(at_home) if is_canary else at_home,
        is_canary=is_canary,
        good=good,
        # A failed canary is always rolled back: its pods run beside the stable ones, so nothing is gained if they stay.
        back=good if is_canary or seen.spec.rollout.on_failure == "Rollback" else None,
        changed=changed,
        known={r.key: r for r in (*others, *changed)},
    )


def _waiting(seen: ObservedRollout, asked: Revision, placed: _Placement, good: Revision) -> RolloutPlan:
    """Return the plan for a canary that has to wait, because its slot has other pods or the model has 0 replicas.

    Other pods are left over from a promotion or a superseded canary. They serve until enough pods in the home slot are
    ready.
    """
    speed, known = pace(seen, good, placed.home), {**placed.known, asked.key: asked}
    return RolloutPlan(
        asked=asked,
        target=good,
        phase=RolloutPhase.PROGRESSING,
        slots=lone_slots(seen, good, speed, placed.home, known=known, routed=good.model),
        pace=speed,
        model=good.model,
        good=good,
        changed=placed.changed,
        again_s=_again(seen, good, RolloutRecord.of(good), seen.slots.get(placed.home), None),
    )


def _course(seen: ObservedRollout, asked: Revision, placed: _Placement, *, unwritten: bool) -> _Course:
    """Return the decision on the rollout, except for removals of old pods to free capacity.

    The decision has the updated rollout record of the requested revision, the target revision and the surge settings.
    """
    record, step = _followed(seen, asked, placed, unwritten=unwritten)
    record = replace(record, sequences=keeps_state(seen.view, seen.spec, asked))
    target = placed.back if placed.back is not None and record.barred else asked
    stays = placed.place if target is asked else placed.home
    speed = SURGE if placed.is_canary and target is asked else pace(seen, target, stays)
    return _Course(record, step, target, stays, speed)


def _with_replacement(
    seen: ObservedRollout, asked: Revision, placed: _Placement, course: _Course, *, unwritten: bool
) -> _Course:
    """Return the decision `course`. If old pods must be removed, the removal is recorded in it.

    They must be removed if there is no capacity for additional pods. The rollout record then has the time and the
    reason.
    """
    record, now = course.record, seen.view.now
    again = unwritten and seen.is_due(replacement_due(seen, asked, record))
    if (
        course.speed.strategy == "Replace"
        and course.target is asked
        and not record.ended
        and (again or not record.replacing)
    ):
        record = record.replace_pods(now, course.speed.why)
    if course.step is not None and (again or not record.replacing):
        lack = seen.lack(asked, seen.slots.get(placed.place))
        if lack and seen.lacks_long(lack):
            record = record.replace_pods(now, lack.message)
    return replace(course, record=record)


def _planned(seen: ObservedRollout, asked: Revision, placed: _Placement, course: _Course) -> RolloutPlan:
    good, record, step, target = placed.good, course.record, course.step, course.target
    noted = record.on(asked)
    made_of = noted if target is asked else target
    unproven = (
        good is not None and target is asked and record.result != RolloutResult.SERVED and not seen.ready(asked.key)
    )
    model = good.model if good is not None and (unproven or step is not None) else target.model
    if step is not None and good is not None:
        slots = canary_slots(seen, good, noted, step, placed.home)
    else:
        known = {**placed.known, noted.key: noted}
        slots = lone_slots(seen, made_of, course.speed, course.stays, known=known, routed=model)
    phase, trouble = phase_of(seen, target, record, seen.slots.get(course.stays), returns=target is not asked)
    if phase is RolloutPhase.BLOCKED and (step or is_freeing_capacity(seen, target, course.speed, slots)):
        phase = RolloutPhase.PROGRESSING  # a pod was removed for the new one, which is then either scheduled or fails
    slot = seen.slots.get(placed.place)
    return RolloutPlan(
        asked=noted,
        target=made_of,
        phase=phase,
        slots=slots,
        pace=course.speed,
        trouble=trouble,
        overdue=is_overdue(seen, asked, record, slot),
        has_time=seen.has_time(target.key, progress_deadline_s(target.startup_timeout_s)),
        model=model,
        good=good,
        canary=step,
        changed=placed.changed,
        again_s=_again(seen, target, record, slot, step),
    )


def _is_canary(seen: ObservedRollout, asked: Revision, good: Revision | None, at_home: Slot) -> bool:
    """Return whether the requested revision is a canary that runs beside the stable revision.

    A rollout that has begun in the home slot continues there, and is no canary. A canary stays one without replicas,
    and if the Deployment in the home slot was deleted.
    """
    there, record = seen.slots.get(at_home), RolloutRecord.of(asked)
    if seen.spec.rollout.strategy != "Canary" or good is None or (there is not None and there.revision == asked.key):
        return False
    has_begun = record.weight > 0 and (record.barred or not record.ended)
    return has_begun or (seen.count > 0 and (there is not None or record.result != RolloutResult.SERVED))


def _is_unwritten(
    seen: ObservedRollout, asked: Revision, place: Slot, *, known: Mapping[str, Revision], routed: str
) -> bool:
    """Return whether the Deployment whose pods are reduced to free capacity was not written yet.

    This happens if the operator ended after it had written the rollout record. The time to wait for the freed capacity
    then starts again, when that Deployment is written.
    """
    for placed in lone_slots(seen, asked, pace(seen, asked, place), place, known=known, routed=routed):
        there = seen.slots.get(placed.slot)
        if there is None or placed.replicas < there.count or placed.pace.max_surge != there.max_surge:
            return True
    return False


def _keeps_all(seen: ObservedRollout, at_home: Slot) -> bool:
    """Return whether the home slot still has all its pods, so that none was removed for a canary yet."""
    there = seen.slots.get(at_home)
    return there is not None and there.count > max(seen.count - 1, 1)


def _followed(
    seen: ObservedRollout, asked: Revision, placed: _Placement, *, unwritten: bool
) -> tuple[RolloutRecord, Advance | None]:
    """Return the requested revision's updated rollout record, and the canary's state if a canary continues."""
    slot, can_return = seen.slots.get(placed.place), placed.back is not None
    record = _begun(seen, asked, slot, can_return=can_return)
    if seen.spec.rollout.strategy == "Surge":
        record = record.surge()
    step: Advance | None = None
    if record.barred and can_return:
        return record, None
    if slot is not None and slot.revision == asked.key:
        record, step = _judged(seen, asked, record, placed, unwritten=unwritten)
    elif placed.is_canary:
        record, step = _stepped(seen, asked, record, placed.place)
    return record, step if step is not None and step.outcome == "goes on" else None


def _begun(seen: ObservedRollout, asked: Revision, slot: SlotState | None, *, can_return: bool) -> RolloutRecord:
    """Return the requested revision's rollout record. It starts again if no rollout of the revision is in progress."""
    record, now = RolloutRecord.of(asked), seen.view.now
    if record.barred and can_return:
        return record
    if slot is not None and slot.revision == asked.key:
        # The slot already runs this revision: an earlier operator version kept no record, or the spec returned to it quickly.
        under_way = record.began and record.result != RolloutResult.SUPERSEDED
    else:
        under_way = record.began and not record.ended
    return record if under_way else record.begin(now)


def _judged(
    seen: ObservedRollout, asked: Revision, record: RolloutRecord, placed: _Placement, *, unwritten: bool
) -> tuple[RolloutRecord, Advance | None]:
    """Return the updated rollout record of a revision that its slot already runs, and the canary's state, if any."""
    now, slot = seen.view.now, seen.slots[placed.place]
    if not record.ended and not seen.ready(asked.key):
        said = seen.why_not(asked.key, slot)
        if said and said.reason in CANT_LOAD:
            record = record.with_load_error(said.reason, said.message)
        if (trouble := failure(seen, asked, record, slot, unwritten=unwritten)) is not None:
            return record.fail(now, trouble.reason, trouble.message), None
    if placed.is_canary:
        return _stepped(seen, asked, record, placed.place)
    if slot.complete and seen.ready(asked.key) and record.result != RolloutResult.SERVED:
        return record.finish(now, placed.place), None
    return record, None


def _stepped(
    seen: ObservedRollout, asked: Revision, record: RolloutRecord, place: Slot
) -> tuple[RolloutRecord, Advance | None]:
    """Return the canary's updated rollout record and its state. The state is None if the canary has ended before."""
    if record.ended:
        return record, None
    view, canary_result = seen.view, seen.view.canary
    step = advance(
        record,
        seen.spec.rollout.canary or Canary(),
        now=view.now,
        count=seen.count,
        ready=seen.ready(asked.key),
        canary_result=canary_result if canary_result and canary_result.revision == asked.key else None,
        wished=wish(
            view.meta.get("annotations") or {}, asked.key, names.revision(view.key.name, asked.key), record.step
        ),
    )
    if step.outcome == "promoted":
        return step.record.finish(view.now, place), step
    if step.outcome == "goes on":
        return replace(step.record, weight=step.weight), step
    reason = Reason.CANARY_ABORTED if step.outcome == "aborted" else Reason.CANARY_ANALYSIS_FAILED
    return step.record.fail(view.now, reason, step.say), step


def _seen_to_serve(seen: ObservedRollout, other: Revision, at_home: Slot) -> Revision:
    """Return the revision `other`, marked as served if all servers run it.

    The rollout record may not show this yet if the spec changed while no operator was running. It may also be missing
    after an upgrade from an operator version that keeps no records.
    """
    slot, record = seen.slots.get(at_home), RolloutRecord.of(other)
    if record.served or slot is None or slot.revision != other.key or not (slot.complete and seen.ready(other.key)):
        return other
    return record.finish(seen.view.now, at_home).on(other)


def _again(
    seen: ObservedRollout, target: Revision, record: RolloutRecord, slot: SlotState | None, step: Advance | None
) -> float | None:
    """Return the requeue delay until the next change that depends only on time, in seconds.

    Return None if there is none.
    """
    dues: list[float | None] = [step.due if step else None]
    if step is not None:
        dues.append(seen.view.now + POLL_REQUEUE_S)
    if len(seen.slots) > 1:
        dues += map(pods.lost_at, seen.view.pods)  # a slot is kept for a pod that is being deleted
    if (lack := seen.lack(target, slot)) is not None:
        dues += [seen.patience(lack), replacement_due(seen, target, record)]
    if not seen.ready(target.key) and not record.ended:
        deadline, began, oldest = deadlines(seen, target, record)
        dues += [at + deadline for at in (began, oldest) if at is not None]
        if slot is not None and slot.timed_out:
            dues.append(oldest and oldest + REPORTS_TIMEOUT_S)
        if seen.view.scaling.settling:
            dues.append(seen.view.now + 1)
    ahead = [at - seen.view.now for at in dues if at is not None and at > seen.view.now]
    return max(min(ahead), SOON_S) if ahead else None
