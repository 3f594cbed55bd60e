"""Rollouts: which revision the servers run, how its pods replace those of another one, and when it has failed. Pure.

Each reconcile derives the decision from the current state: the slots' Deployments, their pods, and the rollout records.
Out of scope: surge settings (`surge_strategy`), the steps of a canary (`canary_progress`), the distribution of pods
over slots (`slot_allocation`), and the status (`control/status/rollout.py`).

A revision fails if none of its pods is ready and one of these is true:
- One of its pods reports that it can't load the model, and the ready pods of other revisions are fewer than desired.
- A pod was removed to free capacity for the revision, and surgeTimeout after the end of that pod, the revision's pod is
  still unschedulable.
- The progress deadline has passed since its first pod was scheduled, or the Deployment reports that it has. This
  doesn't apply while all its pods are unschedulable.

Once one of its pods has been ready, only a user or the canary analysis ends a rollout: a rollback would be no safer
than the rollout.
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
from halcyon.control.rollout.canary_progress import Advance, advance, current_request
from halcyon.control.rollout.observed import LOAD_FAILURES, REPORTS_TIMEOUT_S, ObservedRollout, RevisionFailure
from halcyon.control.rollout.rollout_failure import deadlines, detect_failure, is_overdue, replacement_due
from halcyon.control.rollout.rollout_phase import is_freeing_capacity, phase_of
from halcyon.control.rollout.rollout_plan import RolloutPhase, RolloutPlan
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, home_slot, last_served, other_slot
from halcyon.control.rollout.sequence_models import keeps_state
from halcyon.control.rollout.slot_allocation import canary_slots, lone_slots
from halcyon.control.rollout.superseded import superseded_records
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings, surge_settings
from halcyon.control.state.scope import Scope
from halcyon.kube.kinds import Object
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision
from halcyon.render.server import progress_deadline_s

SOON_S = 0.5
"""Minimum requeue delay, in seconds, even if a deadline passes earlier."""
POLL_REQUEUE_S = 5.0
"""Requeue delay while a canary is in progress, in seconds. The canary analysis must be polled, because requests don't
trigger reconciles."""


@dataclass(frozen=True)
class _Placement:
    """Slots of a rollout, and the other revisions that matter for it."""

    home: Slot
    """The home slot, which runs all servers except those of a canary."""
    slot: Slot
    """Slot of the requested revision. It is the home slot, or the other slot if the revision is a canary."""
    is_canary: bool
    good: Revision | None
    """Revision that was served last, apart from the requested one; None if no other has ever been served."""
    rollback: Revision | None
    """Revision to which a failed rollout rolls back. It is `good`, or None if the failed revision stays."""
    changed: tuple[Revision, ...]
    """Other revisions whose rollout record changes, with the new records."""
    revisions: Mapping[str, Revision]
    """All revisions except the requested one, by key."""


@dataclass(frozen=True)
class _Course:
    """Decision on how the rollout of the requested revision continues."""

    record: RolloutRecord
    """Rollout record of the requested revision."""
    canary: Advance | None
    """State of the canary after this evaluation; None if no canary is in progress."""
    target: Revision
    """Revision that the servers run."""
    slot: Slot
    """Slot in which the target revision runs."""
    pace: SurgeSettings


def decide(scope: Scope, spec: Spec, requested: Revision, deployments: Mapping[Slot, Object]) -> RolloutPlan:
    """Return the rollout plan: which revision the servers run, and the pods of each slot.

    `deployments` are the ModelDeployment's server Deployments, by slot. The decision first determines the slot of the
    requested revision, updates its rollout record and chooses the target revision. It then determines whether old pods
    are removed first to free capacity, and allocates pods to the slots.
    """
    observed = ObservedRollout.at(scope, spec, deployments)
    placement = _placement(observed, requested)
    slot = observed.slots.get(placement.slot)
    if placement.is_canary and placement.good is not None and slot is not None and slot.revision != requested.key:
        return _waiting_plan(observed, requested, placement, placement.good)
    revisions = placement.revisions
    routed = _routed_model(observed, requested, placement.slot, placement.good, {**revisions, requested.key: requested})
    unwritten = (
        _has_all_pods(observed, placement.home)
        if placement.is_canary
        else _is_unwritten(observed, requested, placement.slot, revisions=revisions, routed=routed)
    )
    course = _course(observed, requested, placement, unwritten=unwritten)
    if course.canary is not None and placement.good is not None and (idle := _idle_canary(observed, placement)):
        return replace(_waiting_plan(observed, course.record.on(requested), placement, placement.good), failure=idle)
    course = _with_replacement(observed, requested, placement, course, unwritten=unwritten)
    return _plan(observed, requested, placement, course)


def _placement(observed: ObservedRollout, requested: Revision) -> _Placement:
    revisions, home = observed.scope.revisions, home_slot(observed.scope.revisions)
    others = [_with_served_record(observed, r, home) for r in revisions if r.key != requested.key]
    good = last_served(others)
    changed = tuple(superseded_records(observed, others, requested, other_slot(home)))
    is_canary = _is_canary(observed, requested, good, home)
    return _Placement(
        home=home,
        slot=other_slot(home) if is_canary else home,
        is_canary=is_canary,
        good=good,
        # A failed canary is always rolled back: its pods run beside the stable ones, so nothing is gained if they stay.
        rollback=good if is_canary or observed.spec.rollout.on_failure == "Rollback" else None,
        changed=changed,
        revisions={r.key: r for r in (*others, *changed)},
    )


def _idle_canary(observed: ObservedRollout, placement: _Placement) -> RevisionFailure | None:
    """Return the reason why a canary in progress has no pods now; None if nothing keeps it from having pods.

    After zero replicas, the stable revision's pods come first, because the canary could take the only free GPU, and
    would then serve all requests without a comparison. The canary doesn't wait if they can't be created or scheduled.
    """
    if not observed.count:
        return RevisionFailure(Reason.SCALED_TO_ZERO, "the canary will continue at the next scale-up from 0 replicas")
    good, home = placement.good, observed.slots.get(placement.home)
    if good is None or home is None or observed.live_in(placement.slot):
        return None
    waiting = observed.waiting_pod(good, home)
    is_hopeless = observed.has_surge_timed_out(waiting) or (waiting is None and bool(home.rejection))
    if is_hopeless or any(map(pods.holds_node, observed.live_in(placement.home))):
        return None
    return RevisionFailure(Reason.PROGRESSING, f"the canary continues when a pod of revision {good.key} is scheduled")


def _waiting_plan(observed: ObservedRollout, requested: Revision, placement: _Placement, good: Revision) -> RolloutPlan:
    """Return the plan for a canary that has to wait, because its slot has other pods or the model has 0 replicas.

    The other pods are left over from a promotion or a superseded canary. They serve until enough pods in the home slot
    are ready.
    """
    pace = surge_settings(observed, good, placement.home)
    revisions = {**placement.revisions, requested.key: requested}
    return RolloutPlan(
        requested=requested,
        target=good,
        phase=RolloutPhase.PROGRESSING,
        slots=lone_slots(observed, good, pace, placement.home, revisions=revisions, routed=good.model),
        pace=pace,
        model=good.model,
        good=good,
        changed=placement.changed,
        requeue_s=_requeue_s(observed, good, RolloutRecord.of(good), observed.slots.get(placement.home), None),
    )


def _course(observed: ObservedRollout, requested: Revision, placement: _Placement, *, unwritten: bool) -> _Course:
    """Return the decision on the rollout, except for removals of old pods to free capacity.

    The decision has the updated rollout record of the requested revision, the target revision and the surge settings.
    """
    record, canary = _updated_record(observed, requested, placement, unwritten=unwritten)
    record = replace(record, sequences=keeps_state(observed.scope, observed.spec, requested))
    target = placement.rollback if placement.rollback is not None and record.barred else requested
    target_slot = placement.slot if target is requested else placement.home
    pace = SURGE if placement.is_canary and target is requested else surge_settings(observed, target, target_slot)
    return _Course(record, canary, target, target_slot, pace)


def _with_replacement(
    observed: ObservedRollout, requested: Revision, placement: _Placement, course: _Course, *, unwritten: bool
) -> _Course:
    """Return the decision `course`, with the time and the reason in its record if old pods are removed to free capacity."""
    record, now = course.record, observed.scope.now
    has_expired = unwritten and observed.is_due(replacement_due(observed, requested, record))
    is_due = has_expired or not record.replacing
    removes = course.pace.strategy == "Replace" and observed.others(requested.key)
    if removes and course.target is requested and not record.ended and is_due:
        record = record.replace_pods(now, course.pace.why)
    if course.canary is not None and observed.count > 1 and (has_expired or not record.replacing):
        unschedulable = observed.unschedulable_pod(requested, observed.slots.get(placement.slot))
        if unschedulable and observed.has_surge_timed_out(unschedulable):
            record = record.replace_pods(now, unschedulable.message)
    return replace(course, record=record)


def _plan(observed: ObservedRollout, requested: Revision, placement: _Placement, course: _Course) -> RolloutPlan:
    good, record, canary, target = placement.good, course.record, course.canary, course.target
    updated = record.on(requested)
    updated_target = updated if target is requested else target
    revisions = {**placement.revisions, updated.key: updated}
    if canary is not None and good is not None:
        model, slots = good.model, canary_slots(observed, good, updated, canary, placement.home)
    else:
        model = _routed_model(observed, target, course.slot, good, revisions)
        slots = lone_slots(observed, updated_target, course.pace, course.slot, revisions=revisions, routed=model)
    target_state, is_rollback = observed.slots.get(course.slot), target is not requested
    phase, failure = phase_of(observed, target, record, target_state, is_rollback=is_rollback)
    frees = (canary and record.replacing) or is_freeing_capacity(observed, target, course.pace, slots)
    if phase is RolloutPhase.BLOCKED and frees:
        phase = RolloutPhase.PROGRESSING  # a pod was removed for the new one, which is then either scheduled or fails
    slot = observed.slots.get(placement.slot)
    return RolloutPlan(
        requested=updated,
        target=updated_target,
        phase=phase,
        slots=slots,
        pace=course.pace,
        failure=failure,
        overdue=is_overdue(observed, requested, record, slot),
        has_time=observed.has_time(target.key, progress_deadline_s(target.startup_timeout_s)),
        model=model,
        good=good,
        canary=canary,
        changed=placement.changed,
        requeue_s=_requeue_s(observed, target, record, slot, canary),
    )


def _routed_model(
    observed: ObservedRollout, target: Revision, slot: Slot, good: Revision | None, revisions: Mapping[str, Revision]
) -> str:
    """Return the name of the model that requests are routed to: the target's once it has a ready pod in its slot.

    Before, it is the name that ready pods serve, as long as there are pods of another revision.
    """
    is_ready = any(pods.is_ready(pod) and pods.revision(pod) == target.key for pod in observed.live_in(slot))
    if is_ready or not observed.others(target.key):
        return target.model
    names_served = [revisions[key].model for key in observed.by_revision if key in revisions and observed.ready(key)]
    if good is not None and (good.model in names_served or not names_served):
        return good.model
    return names_served[0] if names_served else target.model


def _is_canary(observed: ObservedRollout, requested: Revision, good: Revision | None, home: Slot) -> bool:
    """Return whether the requested revision is a canary that runs beside the stable revision.

    A rollout that has begun in the home slot continues there, and is no canary. A canary remains one at 0 replicas, and
    after a deletion of the Deployment in the home slot.
    """
    slot, record = observed.slots.get(home), RolloutRecord.of(requested)
    runs_at_home = slot is not None and slot.revision == requested.key
    if observed.spec.rollout.strategy != "Canary" or good is None or runs_at_home:
        return False
    has_begun = record.weight > 0 and (record.barred or not record.ended)
    return has_begun or (observed.count > 0 and (slot is not None or record.result != RolloutResult.SERVED))


def _is_unwritten(
    observed: ObservedRollout, requested: Revision, slot: Slot, *, revisions: Mapping[str, Revision], routed: str
) -> bool:
    """Return whether the Deployment from which pods are removed to free capacity is not written yet.

    This happens if the operator stops after writing the rollout record and before writing the Deployment. The wait for
    the freed capacity then begins again when the Deployment is written.
    """
    pace = surge_settings(observed, requested, slot)
    for allocation in lone_slots(observed, requested, pace, slot, revisions=revisions, routed=routed):
        state = observed.slots.get(allocation.slot)
        if state is None or allocation.replicas < state.count or allocation.pace.max_surge != state.max_surge:
            return True
    return False


def _has_all_pods(observed: ObservedRollout, home: Slot) -> bool:
    """Return whether the home slot still has all its pods, so that none was removed for a canary yet."""
    slot = observed.slots.get(home)
    return slot is not None and slot.count > max(observed.count - 1, 1)


def _updated_record(
    observed: ObservedRollout, requested: Revision, placement: _Placement, *, unwritten: bool
) -> tuple[RolloutRecord, Advance | None]:
    """Return the requested revision's updated rollout record, and the canary's state if a canary continues."""
    slot, can_return = observed.slots.get(placement.slot), placement.rollback is not None
    record = _current_record(observed, requested, slot, can_return=can_return)
    if observed.spec.rollout.strategy == "Surge" or not observed.count:
        record = record.surge()
    canary: Advance | None = None
    if record.barred and can_return:
        return record, None
    if slot is not None and slot.revision == requested.key:
        record, canary = _record_of_running(observed, requested, record, placement, unwritten=unwritten)
    elif placement.is_canary:
        record, canary = _advance_canary(observed, requested, record, placement.slot)
    return record, canary if canary is not None and canary.outcome == "goes on" else None


def _current_record(
    observed: ObservedRollout, requested: Revision, slot: SlotState | None, *, can_return: bool
) -> RolloutRecord:
    """Return the requested revision's rollout record, or a new one if a rollout of the revision starts now."""
    record, now = RolloutRecord.of(requested), observed.scope.now
    if record.barred and can_return:
        return record
    if slot is not None and slot.revision == requested.key:
        # The slot already runs this revision: an earlier operator version kept no record, or the spec returned to it quickly.
        under_way = record.began and record.result != RolloutResult.SUPERSEDED
    else:
        under_way = record.began and not record.ended
    return record if under_way else record.begin(now)


def _record_of_running(
    observed: ObservedRollout, requested: Revision, record: RolloutRecord, placement: _Placement, *, unwritten: bool
) -> tuple[RolloutRecord, Advance | None]:
    """Return the updated rollout record of a revision that its slot already runs, and the canary's state, if any."""
    now, slot = observed.scope.now, observed.slots[placement.slot]
    if not record.ended and not observed.ready(requested.key):
        load_failure = observed.failure(requested.key, slot)
        if load_failure and load_failure.reason in LOAD_FAILURES:
            record = record.with_load_error(load_failure.reason, load_failure.message)
        if (failure := detect_failure(observed, requested, record, slot, unwritten=unwritten)) is not None:
            return record.fail(now, failure.reason, failure.message), None
    if placement.is_canary:
        return _advance_canary(observed, requested, record, placement.slot)
    if slot.complete and observed.ready(requested.key) and record.result != RolloutResult.SERVED:
        return record.finish(now, placement.slot), None
    return record, None


def _advance_canary(
    observed: ObservedRollout, requested: Revision, record: RolloutRecord, place: Slot
) -> tuple[RolloutRecord, Advance | None]:
    """Return the canary's updated rollout record and its state. The state is None if the canary has already ended."""
    if record.ended:
        return record, None
    scope, canary_result, key = observed.scope, observed.scope.canary, requested.key
    request, hint = current_request(scope.meta, record, key, names.revision(scope.key.name, key))
    canary = advance(
        record,
        observed.spec.rollout.canary or Canary(),
        now=scope.now,
        count=observed.count,
        ready=observed.ready(key),
        canary_result=canary_result if canary_result and canary_result.revision == key else None,
        request=request,
    )
    canary = replace(canary, message=canary.message + hint)
    if canary.outcome == "promoted":
        return canary.record.finish(scope.now, place), canary
    if canary.outcome == "goes on":
        return replace(canary.record, weight=canary.weight), canary
    reason = Reason.CANARY_ABORTED if canary.outcome == "aborted" else Reason.CANARY_ANALYSIS_FAILED
    return canary.record.fail(scope.now, reason, canary.message), canary


def _with_served_record(observed: ObservedRollout, revision: Revision, home: Slot) -> Revision:
    """Return the revision. If all servers run it, its rollout record says that its rollout has succeeded.

    The success may not be recorded yet if the spec changed just before, for example during an upgrade, or if earlier
    operator versions kept no records.
    """
    slot, record = observed.slots.get(home), RolloutRecord.of(revision)
    if record.result == RolloutResult.SERVED or slot is None or slot.revision != revision.key or not slot.complete:
        return revision
    return record.finish(observed.scope.now, home).on(revision) if observed.ready(revision.key) else revision


def _requeue_s(
    observed: ObservedRollout, target: Revision, record: RolloutRecord, slot: SlotState | None, canary: Advance | None
) -> float | None:
    """Return the requeue delay until the next change that depends only on time, in seconds; None if there is none."""
    times: list[float | None] = [canary.due if canary else None]
    if canary is not None:
        times.append(observed.scope.now + POLL_REQUEUE_S)
    if len(observed.slots) > 1:
        times += map(pods.lost_at, observed.scope.pods)  # a slot is kept for a pod that is being deleted
    if (waiting := observed.waiting_pod(target, slot)) is not None:
        times += [observed.surge_deadline(waiting), replacement_due(observed, target, record)]
    if not observed.ready(target.key) and not record.ended:
        deadline, began, oldest = deadlines(observed, target, record)
        times += [at + deadline for at in (began, oldest) if at is not None]
        if slot is not None and slot.timed_out:
            times.append(oldest and oldest + REPORTS_TIMEOUT_S)
        if observed.scope.scaling.settling:
            times.append(observed.scope.now + 1)
    delays = [at - observed.scope.now for at in times if at is not None and at > observed.scope.now]
    return max(min(delays), SOON_S) if delays else None
