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
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, other_slot
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
    observed: ObservedRollout,
    target: Revision,
    pace: SurgeSettings,
    slot: Slot,
    *,
    revisions: Mapping[str, Revision],
    routed: str,
) -> tuple[SlotAllocation, ...]:
    """Return the allocation of the slots if all desired pods run the revision `target` in the slot `slot`.

    Pods that are left in the other slot are removed according to the table at the top of the module. `revisions` has the
    revisions with updated rollout records, by key. `routed` is the name of the model that requests are routed to.
    """
    other = other_slot(slot)
    state = _remaining_state(observed, other)
    revision = revisions.get(state.revision) if state else None
    if state is None or revision is None:
        return (SlotAllocation(slot, target, observed.count, pace, 100),)
    target_state = observed.slots.get(slot)
    # If the replicas were lowered, some ready pods may be about to stop; don't count these.
    ready = min(observed.ready_in(slot), target_state.count) if target_state else 0
    kept = 0
    if RolloutRecord.of(revision).result != RolloutResult.FAILED and revision.model == routed:
        kept = _kept_pods(observed, other, state, observed.count - pace.max_unavailable - ready)
    weight = _weight(revision, kept, ready)
    return (
        SlotAllocation(slot, target, observed.count, pace, 100 - weight),
        SlotAllocation(other, revision, kept, SURGE, weight),
    )


def canary_slots(
    observed: ObservedRollout, good: Revision, requested: Revision, canary: Advance, home: Slot
) -> tuple[SlotAllocation, ...]:
    """Return the allocation of the slots during a canary, whose pods are not in the home slot.

    For each ready pod of the canary, one pod in the home slot is removed. If a canary pod has been unschedulable for
    surgeTimeout, one more is removed, unless it is the last one. If the spec returned to a canary, or the canary's
    steps were changed, the canary may have more pods than its step allows. It keeps them until the home slot's pods are
    ready.
    """
    other = other_slot(home)
    ready = observed.ready(requested.key)
    state, home_state = observed.slots.get(other), observed.slots.get(home)
    yielded = 1 if observed.has_surge_timed_out(observed.unschedulable_pod(requested, state)) else 0
    removed = min(canary.pods, ready + yielded)
    weight = canary.weight if ready else 0
    kept = 0
    if state is not None and state.revision == requested.key:
        missing = 1 if observed.has_surge_timed_out(observed.unschedulable_pod(good, home_state)) else 0
        kept = _kept_pods(observed, other, state, observed.count - observed.ready_in(home) - missing)
    return (
        SlotAllocation(home, good, max(observed.count - removed, 1), SURGE, 100 - weight),
        SlotAllocation(other, requested, max(canary.pods, kept), SURGE, weight),
    )


def _remaining_state(observed: ObservedRollout, slot: Slot) -> SlotState | None:
    """Return the state of the Deployment of a slot that is no longer needed; None if it has no replicas and no pods.

    Pods that have ended or whose node is lost are ignored, because their objects may stay for days.
    """
    state = observed.slots.get(slot)
    return state if state is not None and (state.count or observed.remaining_in(slot)) else None


def _kept_pods(observed: ObservedRollout, slot: Slot, state: SlotState, lacking: int) -> int:
    """Return how many pods of a slot stay while the other slot lacks `lacking` pods. Pods that aren't ready never stay."""
    return max(min(state.count, observed.ready_in(slot), lacking), 0)


def _weight(revision: Revision, kept: int, ready: int) -> int:
    """Return the share of the requests that a slot receives, in percent.

    The slot has `kept` pods, and the other slot has `ready` ready pods.
    """
    if not kept:
        return 0
    max_weight = RolloutRecord.of(revision).weight or 99
    return min(max(min(round(100 * kept / (ready + kept)), max_weight), 1), 99) if ready else 99
