"""Which slot has pods of which revision, how many, and what share of the requests. Pure.

The count is one; two slots share it. A slot that isn't needed any more is kept until its last pod is gone.

the revision of a slot that isn't needed any more         its pods                                     its requests
failed, as a canary or else                               go at once                                   none
serves another model name than is routed                  go at once                                   none
any other: promoted over, or left by the spec, none ready go at once                                   none
the same, pods ready                                      go as others get ready, by the rollout's     by its ready pods, no more than it
                                                          pace; those not ready at once                had as a canary; all while no other is ready
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halcyon.control.objects.deployment_status import SlotState
from halcyon.control.rollout.canary_steps import Advance
from halcyon.control.rollout.observed import ObservedRollout
from halcyon.control.rollout.rollout_record import RolloutRecord, RolloutResult, away
from halcyon.control.rollout.surge_strategy import SURGE, SurgeSettings
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class SlotAllocation:
    """A slot as it should be."""

    slot: Slot
    revision: Revision
    replicas: int
    pace: SurgeSettings
    weight: int
    """Share of the requests, of 100."""


def lone_slots(
    seen: ObservedRollout,
    target: Revision,
    speed: SurgeSettings,
    slot: Slot,
    *,
    known: Mapping[str, Revision],
    routed: str,
) -> tuple[SlotAllocation, ...]:
    """All pods in one slot; those that the other one still has go by the table above.

    `known` are revisions by key, their trails as of this look; `routed` is the name of the model that requests go to.
    """
    other = away(slot)
    state = _left_over(seen, other)
    revision = known.get(state.revision) if state else None
    if state is None or revision is None:
        return (SlotAllocation(slot, target, seen.count, speed, 100),)
    there = seen.slots.get(slot)
    # A count that was lowered just now may have pods yet that are on their way out.
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
    """The canary in the other slot, and as many pods fewer at home as are ready there: the sum stays the count.

    Where the canary finds no room for surgeWait, one more at home gives way. One that has more pods than its step asks for (the spec
    came back to it, or its steps were changed) keeps them until those at home are ready.
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
    """A slot that isn't needed any more; None where nothing is left of it."""
    state = seen.slots.get(slot)
    pods = [p for p in seen.view.pods if p["metadata"]["labels"].get(names.SLOT_LABEL) == slot]
    return state if state is not None and (state.count or pods) else None


def _may_stay(seen: ObservedRollout, slot: Slot, state: SlotState, lacking: int) -> int:
    """Pods of a slot that stay while so many are lacking elsewhere. Those that aren't ready answer nobody, and hold room."""
    return max(min(state.count, seen.ready_in(slot), lacking), 0)


def _share(revision: Revision, stays: int, ready: int) -> int:
    """Share of the requests, of 100, of pods that stay beside so many ready ones."""
    if not stays:
        return 0
    most = RolloutRecord.of(revision).weight or 99
    return min(max(min(round(100 * stays / (ready + stays)), most), 1), 99) if ready else 99
