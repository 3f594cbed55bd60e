"""Rollouts: which revision the servers are made of, how pods of another give way to it, and when it has failed. Pure.

Everything is derived anew from what is: the slots' Deployments, their pods, and the trails of the records. Not here: how far pods
give way (`pace`), the steps of a canary (`canary`), where pods are (`placing`), and what of it is shown (`rollout_status`).

the revision asked for   onFailure   another was served before   the servers are made of
has not failed           -           -                           it
has failed               Stay        -                           it
has failed               Rollback    no                          it: there is nothing to go back to
has failed               Rollback    yes                         the one served before

It fails while none of its pods is ready and
- one says that it can't load the model, and fewer pods of other revisions are ready than wanted: at once;
- a pod had to go for it and it finds no room all the same, for surgeWait once that pod is gone;
- its oldest pod is older than the progress deadline, or the Deployment has made no progress for as long, for any reason but
  room under Surge: then nothing is lost by waiting.
Once a pod of it was ready, it is for a person to judge, or for a canary's analysis: going back is no safer than going on.
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
"""Not looked sooner again for what time alone will change."""
POLL_REQUEUE_S = 5.0
"""How often a canary is looked at: requests cause no reconcile."""


class RolloutPhase(StrEnum):
    """Where a rollout is."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"
    """There is no room for it."""
    FAILED = "Failed"
    """It failed and stays: there is nothing to go back to, or spec.rollout.onFailure says so."""
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True)
class RolloutPlan:
    """What is to be done, and what there is to say."""

    asked: Revision
    """The revision that the accepted spec asks for."""
    target: Revision
    """The revision that the servers are made of: another one once it has failed."""
    phase: RolloutPhase
    slots: tuple[SlotAllocation, ...]
    """Where pods are to be; the first has the servers of old."""
    pace: SurgeSettings = SURGE
    trouble: RevisionFailure | None = None
    """Why the revision asked for has failed or is blocked, or what keeps its pods from being ready."""
    overdue: bool = False
    """The progress deadline has passed."""
    has_time: bool = False
    """A pod that has waited for room is starting, and within the deadline: what the Deployment says of it doesn't count."""
    model: str = ""
    """Name of the model that is routed to."""
    good: Revision | None = None
    """The revision to go back to."""
    canary: Advance | None = None
    """None where there is no canary under way."""
    changed: tuple[Revision, ...] = ()
    """Other revisions whose trail changes."""
    again_s: float | None = None
    """When time alone may change something; None: not."""

    @property
    def trail(self) -> RolloutRecord:
        """Of the revision asked for."""
        return RolloutRecord.of(self.asked)

    @property
    def way_back(self) -> Revision | None:
        """The revision that must be kept: what was served last is needed until the one asked for is."""
        return None if self.trail.result == RolloutResult.SERVED else self.good

    @property
    def home(self) -> Slot:
        """The slot of the servers, the canary's apart."""
        return self.slots[0].slot if self.slots else SLOT_A


def decide(view: Scope, spec: Spec, asked: Revision, deployments: Mapping[Slot, Object]) -> RolloutPlan:
    """What the servers are made of, and how they get there; `deployments` are the slots' own."""
    seen = ObservedRollout.at(view, spec, deployments)
    at_home = home(view.revisions)
    others = [_seen_to_serve(seen, r, at_home) for r in view.revisions if r.key != asked.key]
    good = last_good(others, asked)
    changed = tuple(left(seen, others, asked, away(at_home)))
    known = {r.key: r for r in (*others, *changed)}
    is_canary = _is_canary(seen, asked, good, at_home)
    # A canary that failed has pods beside the others' to give up, and no reason to stay.
    back = good if is_canary or spec.rollout.on_failure == "Rollback" else None
    place = away(at_home) if is_canary else at_home
    if is_canary and good is not None and _is_taken(seen, place, asked):
        # A promotion isn't over, or another canary was left: the pods there serve until those at home do, so this one waits.
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
        phase = RolloutPhase.PROGRESSING  # a pod has gone for it: it finds room, or fails
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
    """Whether the revision asked for comes beside the other one. What has begun in the slot of all goes on there."""
    there = seen.slots.get(at_home)
    if seen.spec.rollout.strategy != "Canary" or good is None or not seen.count or there is None:
        return False
    return there.revision != asked.key


def _untold(seen: ObservedRollout, asked: Revision, place: Slot, *, known: Mapping[str, Revision], routed: str) -> bool:
    """Whether pods that are to give way don't know it yet: the record was written, and the process ended before the Deployments were.

    The wait for the room that they leave begins when they are told to go.
    """
    for placed in lone_slots(seen, asked, pace(seen, asked, place), place, known=known, routed=routed):
        there = seen.slots.get(placed.slot)
        if there is None or placed.replicas < there.count or placed.pace.max_surge != there.max_surge:
            return True
    return False


def _keeps_all(seen: ObservedRollout, at_home: Slot) -> bool:
    """The same of a canary, for which one pod at home gives way: none was told to."""
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
    """The trail of the revision asked for by what is seen now, and its step where it is a canary that goes on."""
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
    """The trail of the revision asked for, begun anew where its slot isn't of it yet."""
    trail, now = RolloutRecord.of(asked), seen.view.now
    if trail.barred and can_return:
        return trail
    if slot is not None and slot.revision == asked.key:
        # Found as it is: of an earlier version that kept no trail, or asked for again before the slot was changed.
        under_way = trail.began and trail.result != RolloutResult.SUPERSEDED
    else:
        under_way = trail.began and not trail.ended
    return trail if under_way else trail.begin(now)


def _is_taken(seen: ObservedRollout, slot: Slot, asked: Revision) -> bool:
    """Whether a slot has pods of another revision."""
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
    """The trail of what has pods, and the canary's step where there is one."""
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
    """The canary, one look on."""
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
    reason = Reason.CANARY_ABORTED if step.outcome == "aborted" else Reason.CANARY_WORSE
    return step.trail.fail(view.now, reason, step.say), step


def _seen_to_serve(seen: ObservedRollout, other: Revision, at_home: Slot) -> Revision:
    """The revision with a trail that says so, where all servers are of it and nobody was there to write it down.

    The spec may have been changed while no operator ran, or by the first look of one that keeps trails.
    """
    slot, trail = seen.slots.get(at_home), RolloutRecord.of(other)
    if trail.served or slot is None or slot.revision != other.key or not (slot.complete and seen.ready(other.key)):
        return other
    return trail.finish(seen.view.now, at_home).on(other)


def _failure(
    seen: ObservedRollout, asked: Revision, trail: RolloutRecord, slot: SlotState, *, untold: bool
) -> RevisionFailure | None:
    """Why it has failed, none of its pods being ready; None while it hasn't."""
    if seen.count == 0:
        return None
    trouble = seen.why_not(asked.key, slot)
    given_up = sum(seen.ready(key) for key in seen.of if key != asked.key) < seen.count
    if trouble and trouble.reason in CANT_LOAD and given_up:
        return trouble
    lack = seen.lack(asked, slot)
    if lack is not None and (untold or not trail.replacing or not seen.is_due(_replaced_by(seen, asked, trail))):
        return None
    # Its own wait as well: where the Deployment's controller was away, the pod that is to take the room has only just come.
    if lack is not None and seen.lacks_long(lack):
        return RevisionFailure(Reason.UNSCHEDULABLE, lack.message)
    if _is_overdue(seen, asked, trail, slot):
        if trail.reason:
            return RevisionFailure(Reason(trail.reason), trail.message)
        if trouble is None and seen.view.scaling.settling:
            return None  # who could tell the reason hasn't been heard yet
        within = f"not ready within {progress_deadline_s(asked.startup_timeout_s)} s"
        return trouble or RevisionFailure(Reason.PROGRESS_DEADLINE_EXCEEDED, within)
    return None


def _is_overdue(seen: ObservedRollout, asked: Revision, trail: RolloutRecord, slot: SlotState | None) -> bool:
    """Whether the progress deadline has passed without a pod of it getting ready.

    The Deployment's own clock starts anew with each step; right after a change of its template it may still tell of the one
    before. A pod's time since it has a node is the measure where a count that was 0 has hidden the revision from it. What pods have
    waited for room is nobody's failure, and counts in neither.
    """
    if slot is None or slot.revision != asked.key or seen.ready(asked.key):
        return False
    deadline, began, oldest = _deadlines(seen, asked, trail)
    if seen.is_due(oldest and oldest + deadline):
        return True
    heard = oldest is None or seen.is_due(oldest + HEARD_S)
    return slot.timed_out and heard and seen.is_due(began and began + deadline)


def _deadlines(seen: ObservedRollout, asked: Revision, trail: RolloutRecord) -> tuple[int, float | None, float | None]:
    """The progress deadline in seconds, when the rollout began but for the wait for room, and when its first pod began to start."""
    began = epoch_seconds(trail.began)
    began = began and began + seen.waited_s(asked.key)
    return progress_deadline_s(asked.startup_timeout_s), began, seen.oldest(asked.key)


def _replaced_by(seen: ObservedRollout, asked: Revision, trail: RolloutRecord) -> float | None:
    """When a pod must have found the room of the one that went for it."""
    since = epoch_seconds(trail.replacing)
    return None if since is None else since + grace_s(asked) + seen.surge_wait_s


def _gives_way(
    seen: ObservedRollout, target: Revision, speed: SurgeSettings, slots: tuple[SlotAllocation, ...]
) -> bool:
    """Whether pods of another revision give their room to this one's, one by one."""
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
        # Of one that was served, all that its controller hasn't seen yet is another count: that is no rollout.
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
    """Seconds until something here is due that no event will tell."""
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
