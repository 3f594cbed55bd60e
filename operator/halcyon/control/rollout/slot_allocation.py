"""Allocation of a rollout's slots: each has a revision, a number of pods and a share of the requests. Pure.

Two slots share the replicas of a model. A slot that is no longer needed exists until its last pod has ended.
"""

# revision of a slot no longer needed        its pods                                its share of the requests
# failed, as a canary or otherwise           removed at once                         none
# serves another model name than requests    removed at once                         none
# are routed to
# else, without ready pods                   removed at once                         none
# else, with ready pods                      ready ones are removed as pods in the   proportional to its ready pods, but no more than
#                                            other slot become ready, at the pace    its weight as a canary; all requests while the
#                                            of the rollout; unready ones at once    other slot has no ready pod

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.canary_progress import Advance
from halcyon.control.rollout.observed import ObservedRollout
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, away
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class SlotAllocation:
    """Desired state of one slot."""

    slot: Slot
    revision: Revision
    replicas: int
    pace: SurgeSettings
    weight: int
    """Share of the requests that the slot receives, in percent."""


def lone_slots(
    seen: ObservedRollout,
    target: Revision,
    speed: SurgeSettings,
    slot: Slot,
    *,
    known: Mapping[str, Revision],
    routed: str,
) -> tuple[SlotAllocation, ...]:
    """Return the allocation of the slots if all desired pods are in one slot.

    Pods that are left in the other slot are removed according to the table at the top of the module.

    Args:
        seen: the observed state.
        target: the revision that the servers run.
        speed: surge settings of the rollout, which determine its pace.
        slot: the slot of the target revision.
        known: revisions by key, with their updated rollout records.
        routed: name of the model that requests are routed to.
    """
    other = away(slot)
    state = _left_over(seen, other)
    revision = known.get(state.revision) if state else None
    if state is None or revision is None:
        return (SlotAllocation(slot, target, seen.count, speed, 100),)
    there = seen.slots.get(slot)
    # If the replicas were lowered, some ready pods may be about to stop; don't count these.
    ready = min(seen.ready_in(slot), there.count) if there else 0
    stays = 0
    if RolloutRecord.of(revision).result != RolloutResult.FAILED and revision.model == routed:
        stays = _may_stay(seen, other, state, seen.count - speed.max_unavailable - ready)
    share = _share(revision, stays, ready)
    return (
        SlotAllocation(slot, target, seen.count, speed, 100 - share),
        SlotAllocation(other, revision, stays, SURGE, share),
    )


def canary_slots(
    seen: ObservedRollout, good: Revision, asked: Revision, step: Advance, at_home: Slot
) -> tuple[SlotAllocation, ...]:
    """Return the allocation of the slots during a canary, whose pods are not in the home slot.

    For each ready pod of the canary, one pod in the home slot is removed. If a canary pod has been unschedulable for
    surgeTimeout, one more is removed. If the spec returned to a canary, or the canary's steps were changed, the canary
    may have more pods than its step allows. It keeps them until the pods in the home slot are ready.
    """
    other = away(at_home)
    ready = seen.ready(asked.key)
    state, there = seen.slots.get(other), seen.slots.get(at_home)
    gives_way = 1 if seen.lacks_long(seen.lack(asked, state)) else 0
    fewer = min(step.pods, ready + gives_way)
    weight = step.weight if ready else 0
    stays = 0
    if state is not None and state.revision == asked.key:
        short = 1 if seen.lacks_long(seen.lack(good, there)) else 0
        stays = _may_stay(seen, other, state, seen.count - seen.ready_in(at_home) - short)
    return (
        SlotAllocation(at_home, good, max(seen.count - fewer, 1), SURGE, 100 - weight),
        SlotAllocation(other, asked, max(step.pods, stays), SURGE, weight),
    )


def _left_over(seen: ObservedRollout, slot: Slot) -> SlotState | None:
    """Return the desired state of a slot that is no longer needed. Return None if it has neither replicas nor pods.

    Pods that have ended, or whose node is lost, don't count: their objects may stay for days.
    """
    state = seen.slots.get(slot)
    return state if state is not None and (state.count or seen.remaining_in(slot)) else None


def _may_stay(seen: ObservedRollout, slot: Slot, state: SlotState, lacking: int) -> int:
    """Return how many ready pods of a slot stay while the other slot still lacks `lacking` pods.

    Unready pods never stay.
    """
    return max(min(state.count, seen.ready_in(slot), lacking), 0)


def _share(revision: Revision, stays: int, ready: int) -> int:
    """Return the share of the requests that a slot receives, in percent.

    The slot has `stays` pods, and the other slot has `ready` ready pods.
    """
    if not stays:
        return 0
    most = RolloutRecord.of(revision).weight or 99
    return min(max(min(round(100 * stays / (ready + stays)), most), 1), 99) if ready else 99
