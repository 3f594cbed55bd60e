"""Rollouts: which revision the servers run, how its pods replace those of another one, and when it has failed. Pure.

Everything is derived from the current state on each reconcile: the slots' Deployments, their pods, and the rollout records.
Out of scope: surge settings (`surge_strategy`), the steps of a canary (`canary_steps`), the distribution of pods over slots
(`slot_allocation`), and the status (`control/status/rollout.py`).

the requested revision   onFailure   another was served before   the servers run
has not failed           -           -                           it
has failed               Stay        -                           it
has failed               Rollback    no                          it: there is nothing to roll back to
has failed               Rollback    yes                         the one served before

It fails while none of its pods is ready and one of these is true:
- One of its pods reports that it can't load the model, and fewer pods of other revisions are ready than desired: it fails at once.
- A pod was removed for it, and it is still unschedulable for surgeWait after that pod is gone.
- Its oldest pod is older than the progress deadline, or the Deployment has made no progress for as long. Missing capacity under Surge
  is no reason to fail: waiting does no harm.
Once one of its pods was ready, the decision is left to a user or to the canary analysis: rolling back is no safer than going on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from halcyon.api.conditions import Reason
from halcyon.api.spec import Spec
from halcyon.api.spec.rollout import Canary
from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.canary_steps import Advance, advance, wish
from halcyon.control.rollout.observed import CANT_LOAD, HEARD_S, ObservedRollout, RevisionFailure, grace_s
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, away, home, last_good
from halcyon.control.rollout.sequence_models import keeps_state
from halcyon.control.rollout.slot_allocation import SlotAllocation, canary_slots, lone_slots
from halcyon.control.rollout.superseded import left
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings, pace
from halcyon.control.state.scope import Scope
from halcyon.kube.client import Object
from halcyon.render import names
from halcyon.render.names import SLOT_A, Slot
from halcyon.render.revision import Revision
from halcyon.render.server import progress_deadline_s

SOON_S = 0.5
"""Minimum requeue delay for purely time-based changes."""
POLL_REQUEUE_S = 5.0
"""Polling interval of a canary: requests cause no reconcile."""


class RolloutPhase(StrEnum):
    """The phase of a rollout."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"
    """The new pods are unschedulable."""
    FAILED = "Failed"
    """It failed and stays: there is nothing to roll back to, or spec.rollout.onFailure is Stay."""
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True)
class RolloutPlan:
    """The rollout decision of one reconcile, with what the status shows about it."""

    asked: Revision
    """The revision that the accepted spec requests."""
    target: Revision
    """The revision that the servers run: `asked`, or another one once that has failed."""
    phase: RolloutPhase
    slots: tuple[SlotAllocation, ...]
    """Desired pods by slot; the first is the home slot."""
    pace: SurgeSettings = SURGE
    trouble: RevisionFailure | None = None
    """Why the requested revision has failed or is blocked, or why its pods aren't ready."""
    overdue: bool = False
    """Whether the progress deadline has passed."""
    has_time: bool = False
    """Whether a pod that was unschedulable is now starting within the deadline. If so, the Deployment's own deadline doesn't count."""
    model: str = ""
    """Name of the model that requests are routed to."""
    good: Revision | None = None
    """The revision to roll back to."""
    canary: Advance | None = None
    """None if no canary is in progress."""
    changed: tuple[Revision, ...] = ()
    """Other revisions whose rollout record changes."""
    again_s: float | None = None
    """Requeue delay until time alone may change something, in seconds; None if it can't."""

    @property
    def trail(self) -> RolloutRecord:
        """Rollout record of the requested revision."""
        return RolloutRecord.of(self.asked)

    @property
    def way_back(self) -> Revision | None:
        """The revision to keep for a rollback: the last one served is needed until the requested one is served."""
        return None if self.trail.result == RolloutResult.SERVED else self.good

    @property
    def home(self) -> Slot:
        """The slot of the servers, not that of a canary."""
        return self.slots[0].slot if self.slots else SLOT_A


def decide(view: Scope, spec: Spec, asked: Revision, deployments: Mapping[Slot, Object]) -> RolloutPlan:
    """Return which revision the servers run, and how they get there; `deployments` are the slots' own."""
    seen = ObservedRollout.at(view, spec, deployments)
    at_home = home(view.revisions)
    others = [_seen_to_serve(seen, r, at_home) for r in view.revisions if r.key != asked.key]
    good = last_good(others, asked)
    changed = tuple(left(seen, others, asked, away(at_home)))
    known = {r.key: r for r in (*others, *changed)}
    is_canary = _is_canary(seen, asked, good, at_home)
    # A failed canary only has pods beside the others' to give up, and no reason to stay.
    back = good if is_canary or spec.rollout.on_failure == "Rollback" else None
    place = away(at_home) if is_canary else at_home
    if is_canary and good is not None and _is_taken(seen, place, asked):
        # A promotion isn't over, or another canary was superseded: its pods serve until those in the home slot do, so this one waits.
        speed = pace(seen, good, at_home)
        return RolloutPlan(
            asked=asked,
            target=good,
            phase=RolloutPhase.PROGRESSING,
            slots=lone_slots(seen, good, speed, at_home, known=known, routed=good.model),
            pace=speed,
            model=good.model,
            good=good,
            changed=changed,
            again_s=_again(seen, good, RolloutRecord.of(good), seen.slots.get(at_home), None),
        )
    slot = seen.slots.get(place)
    routed = good.model if good else asked.model
    untold = _keeps_all(seen, at_home) if is_canary else _untold(seen, asked, place, known=known, routed=routed)
    trail, step = _followed(seen, asked, slot, place, is_canary=is_canary, can_return=back is not None, untold=untold)
    trail = replace(trail, sequences=keeps_state(view, spec, asked))
    target = back if back is not None and trail.barred else asked
    stays = place if target is asked else at_home
    speed = SURGE if is_canary and target is asked else pace(seen, target, stays)
    again = untold and seen.is_due(_replaced_by(seen, asked, trail))
    if speed.strategy == "Replace" and target is asked and not trail.ended and (again or not trail.replacing):
        trail = trail.replace_pods(view.now, speed.why)
    if (
        step is not None
        and (again or not trail.replacing)
        and (lack := seen.lack(asked, slot))
        and seen.lacks_long(lack)
    ):
        trail = trail.replace_pods(view.now, lack.message)
    noted = trail.on(asked)
    made_of = noted if target is asked else target
    unproven = (
        good is not None and target is asked and trail.result != RolloutResult.SERVED and not seen.ready(asked.key)
    )
    model = good.model if good is not None and (unproven or step is not None) else target.model
    if step is not None and good is not None:
        slots = canary_slots(seen, good, noted, step, at_home)
    else:
        slots = lone_slots(seen, made_of, speed, stays, known=known | {noted.key: noted}, routed=model)
    phase, trouble = _phase(seen, target, trail, seen.slots.get(stays), returns=target is not asked)
    if phase is RolloutPhase.BLOCKED and (step or _gives_way(seen, target, speed, slots)):
        phase = RolloutPhase.PROGRESSING  # a pod was removed for it: it gets scheduled, or fails
    return RolloutPlan(
        asked=noted,
        target=made_of,
        phase=phase,
        slots=slots,
        pace=speed,
        trouble=trouble,
        overdue=_is_overdue(seen, asked, trail, slot),
        has_time=seen.has_time(target.key, progress_deadline_s(target.startup_timeout_s)),
        model=model,
        good=good,
        canary=step,
        changed=changed,
        again_s=_again(seen, target, trail, slot, step),
    )


def _is_canary(seen: ObservedRollout, asked: Revision, good: Revision | None, at_home: Slot) -> bool:
    """Return whether the requested revision runs beside the other one. A rollout that has begun in the home slot continues there."""
    there = seen.slots.get(at_home)
    if seen.spec.rollout.strategy != "Canary" or good is None or not seen.count or there is None:
        return False
    return there.revision != asked.key


def _untold(seen: ObservedRollout, asked: Revision, place: Slot, *, known: Mapping[str, Revision], routed: str) -> bool:
    """Return whether Deployments that must shrink weren't written yet: the process may have ended right after it wrote the record.

    The wait for the capacity that their pods free begins with that write.
    """
    for placed in lone_slots(seen, asked, pace(seen, asked, place), place, known=known, routed=routed):
        there = seen.slots.get(placed.slot)
        if there is None or placed.replicas < there.count or placed.pace.max_surge != there.max_surge:
            return True
    return False


def _keeps_all(seen: ObservedRollout, at_home: Slot) -> bool:
    """Return whether no pod was removed yet from the home slot for a canary, which takes the place of one."""
    there = seen.slots.get(at_home)
    return there is not None and there.count > max(seen.count - 1, 1)


def _followed(
    seen: ObservedRollout,
    asked: Revision,
    slot: SlotState | None,
    place: Slot,
    *,
    is_canary: bool,
    can_return: bool,
    untold: bool,
) -> tuple[RolloutRecord, Advance | None]:
    """Return the updated rollout record of the requested revision, and its step if it is a canary that goes on."""
    trail = _begun(seen, asked, slot, can_return=can_return)
    if seen.spec.rollout.strategy == "Surge":
        trail = trail.surge()
    step: Advance | None = None
    if trail.barred and can_return:
        return trail, None
    if slot is not None and slot.revision == asked.key:
        trail, step = _judged(seen, asked, trail, slot, place=place, is_canary=is_canary, untold=untold)
    elif is_canary:
        trail, step = _stepped(seen, asked, trail, place)
    return trail, step if step is not None and step.outcome == "goes on" else None


def _begun(seen: ObservedRollout, asked: Revision, slot: SlotState | None, *, can_return: bool) -> RolloutRecord:
    """Return the rollout record of the requested revision, restarted if its slot isn't of that revision yet."""
    trail, now = RolloutRecord.of(asked), seen.view.now
    if trail.barred and can_return:
        return trail
    if slot is not None and slot.revision == asked.key:
        # The slot is of it already: from an earlier version that kept no record, or requested again before the slot was changed.
        under_way = trail.began and trail.result != RolloutResult.SUPERSEDED
    else:
        under_way = trail.began and not trail.ended
    return trail if under_way else trail.begin(now)


def _is_taken(seen: ObservedRollout, slot: Slot, asked: Revision) -> bool:
    """Return whether a slot has pods of another revision."""
    there = seen.slots.get(slot)
    return there is not None and there.revision != asked.key


def _judged(
    seen: ObservedRollout,
    asked: Revision,
    trail: RolloutRecord,
    slot: SlotState,
    *,
    place: Slot,
    is_canary: bool,
    untold: bool,
) -> tuple[RolloutRecord, Advance | None]:
    """Return the rollout record of a revision that has pods, and the canary's step if there is one."""
    now = seen.view.now
    if not trail.ended and not seen.ready(asked.key):
        said = seen.why_not(asked.key, slot)
        if said and said.reason in CANT_LOAD:
            trail = trail.hear(said.reason, said.message)
        if (trouble := _failure(seen, asked, trail, slot, untold=untold)) is not None:
            return trail.fail(now, trouble.reason, trouble.message), None
    if is_canary:
        return _stepped(seen, asked, trail, place)
    if slot.complete and seen.ready(asked.key) and trail.result != RolloutResult.SERVED:
        return trail.finish(now, place), None
    return trail, None


def _stepped(
    seen: ObservedRollout, asked: Revision, trail: RolloutRecord, place: Slot
) -> tuple[RolloutRecord, Advance | None]:
    """Return the canary's rollout record and step after this observation."""
    if trail.ended:
        return trail, None
    view, verdict = seen.view, seen.view.canary
    step = advance(
        trail,
        seen.spec.rollout.canary or Canary(),
        now=view.now,
        count=seen.count,
        ready=seen.ready(asked.key),
        verdict=verdict if verdict and verdict.revision == asked.key else None,
        wished=wish(view.meta.get("annotations") or {}, asked.key, names.revision(view.key.name, asked.key)),
    )
    if step.outcome == "promoted":
        return step.trail.finish(view.now, place), step
    if step.outcome == "goes on":
        return replace(step.trail, weight=step.weight), step
    reason = Reason.CANARY_ABORTED if step.outcome == "aborted" else Reason.CANARY_ANALYSIS_FAILED
    return step.trail.fail(view.now, reason, step.say), step


def _seen_to_serve(seen: ObservedRollout, other: Revision, at_home: Slot) -> Revision:
    """Return the revision, recorded as served if all servers are of it and the record doesn't show that yet.

    The spec may have changed while no operator ran, or before the first reconcile of a version that keeps records.
    """
    slot, trail = seen.slots.get(at_home), RolloutRecord.of(other)
    if trail.served or slot is None or slot.revision != other.key or not (slot.complete and seen.ready(other.key)):
        return other
    return trail.finish(seen.view.now, at_home).on(other)


def _failure(
    seen: ObservedRollout, asked: Revision, trail: RolloutRecord, slot: SlotState, *, untold: bool
) -> RevisionFailure | None:
    """Return why the revision has failed, while none of its pods is ready; None if it hasn't."""
    if seen.count == 0:
        return None
    trouble = seen.why_not(asked.key, slot)
    given_up = sum(seen.ready(key) for key in seen.of if key != asked.key) < seen.count
    if trouble and trouble.reason in CANT_LOAD and given_up:
        return trouble
    lack = seen.lack(asked, slot)
    if lack is not None and (untold or not trail.replacing or not seen.is_due(_replaced_by(seen, asked, trail))):
        return None
    # Its own wait as well: if the Deployment controller was down, the pod that is to take the freed capacity is brand-new.
    if lack is not None and seen.lacks_long(lack):
        return RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    if _is_overdue(seen, asked, trail, slot):
        if trail.reason:
            return RevisionFailure(Reason(trail.reason), trail.message)
        if trouble is None and seen.view.scaling.settling:
            return None  # no report yet from the agents, which know the reason
        within = f"not ready within {progress_deadline_s(asked.startup_timeout_s)} s"
        return trouble or RevisionFailure(Reason.PROGRESS_DEADLINE_EXCEEDED, within)
    return None


def _is_overdue(seen: ObservedRollout, asked: Revision, trail: RolloutRecord, slot: SlotState | None) -> bool:
    """Return whether the progress deadline has passed without a ready pod of the revision.

    The Deployment's own clock restarts with each step, and right after a change of its template it may still be about the previous one.
    If the replicas were 0, the Deployment has not seen the revision's pods; then a pod's time since scheduling is the measure. Time that
    pods spent unschedulable is no failure, and counts in neither.
    """
    if slot is None or slot.revision != asked.key or seen.ready(asked.key):
        return False
    deadline, began, oldest = _deadlines(seen, asked, trail)
    if seen.is_due(oldest and oldest + deadline):
        return True
    heard = oldest is None or seen.is_due(oldest + HEARD_S)
    return slot.timed_out and heard and seen.is_due(began and began + deadline)


def _deadlines(seen: ObservedRollout, asked: Revision, trail: RolloutRecord) -> tuple[int, float | None, float | None]:
    """Return the progress deadline in seconds, the rollout's start plus the wait for scheduling, and the start of its first pod."""
    began = epoch_seconds(trail.began)
    began = began and began + seen.waited_s(asked.key)
    return progress_deadline_s(asked.startup_timeout_s), began, seen.oldest(asked.key)


def _replaced_by(seen: ObservedRollout, asked: Revision, trail: RolloutRecord) -> float | None:
    """Return the time by which a pod must have been scheduled in place of the one that was removed for it; None if none was."""
    since = epoch_seconds(trail.replacing)
    return None if since is None else since + grace_s(asked) + seen.surge_wait_s


def _gives_way(
    seen: ObservedRollout, target: Revision, speed: SurgeSettings, slots: tuple[SlotAllocation, ...]
) -> bool:
    """Return whether pods of another revision are being replaced by this one's, one by one."""
    if speed.strategy != "Replace":
        return False
    ready = sum(seen.ready_in(placed.slot) for placed in slots)
    return not seen.ready(target.key) or (len(slots) > 1 and ready >= seen.count - speed.max_unavailable)


def _phase(
    seen: ObservedRollout, target: Revision, trail: RolloutRecord, slot: SlotState | None, *, returns: bool
) -> tuple[RolloutPhase, RevisionFailure | None]:
    there = (
        slot is not None
        and slot.revision == target.key
        and slot.whole
        # For a revision that was served, the only change that the controller hasn't seen yet is that of replicas, which is no rollout.
        and (slot.seen or returns or trail.result == RolloutResult.SERVED)
        and not seen.others(target.key)
    )
    failed = RevisionFailure(Reason(trail.reason), trail.message) if trail.ended and trail.reason else None
    if returns:
        return (RolloutPhase.ROLLED_BACK if there else RolloutPhase.ROLLING_BACK), failed
    if there and (seen.ready(target.key) or seen.count == 0):
        return RolloutPhase.COMPLETE, None
    if trail.result == RolloutResult.FAILED:
        return RolloutPhase.FAILED, failed
    lack = seen.lack(target, slot)
    if lack is not None and seen.lacks_long(lack):
        return RolloutPhase.BLOCKED, RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    return RolloutPhase.PROGRESSING, None if seen.ready(target.key) else seen.why_not(target.key, slot)


def _again(
    seen: ObservedRollout, target: Revision, trail: RolloutRecord, slot: SlotState | None, step: Advance | None
) -> float | None:
    """Return the seconds until the next time-based change, which no event will announce; None if there is none."""
    dues: list[float | None] = [step.due if step else None]
    if step is not None:
        dues.append(seen.view.now + POLL_REQUEUE_S)
    if (lack := seen.lack(target, slot)) is not None:
        dues += [seen.patience(lack), _replaced_by(seen, target, trail)]
    if not seen.ready(target.key) and not trail.ended:
        deadline, began, oldest = _deadlines(seen, target, trail)
        dues += [at + deadline for at in (began, oldest) if at is not None]
        if slot is not None and slot.timed_out:
            dues.append(oldest and oldest + HEARD_S)
        if seen.view.scaling.settling:
            dues.append(seen.view.now + 1)
    ahead = [at - seen.view.now for at in dues if at is not None and at > seen.view.now]
    return max(min(ahead), SOON_S) if ahead else None
