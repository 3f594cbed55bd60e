"""Which slot has pods of which revision, how many, and what share of the requests. Pure.

The count is one; two slots share it. A slot that isn't needed any more is kept until its last pod is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.control.canary import Advance
from halcyon.control.pace import SURGE, Pace
from halcyon.control.sight import Sight
from halcyon.control.trail import Trail, away
from halcyon.render import names
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class Placed:
    """A slot as it should be."""

    slot: Slot
    revision: Revision
    replicas: int
    pace: Pace
    weight: int
    """Share of the requests, of 100."""


def lone_slots(seen: Sight, target: Revision, speed: Pace, slot: Slot) -> tuple[Placed, ...]:
    """All pods in one slot. Those that the other one still has go as those here become ready; at once, where they never served."""
    left, revision = _left_over(seen, away(slot))
    if left is None or revision is None:
        return (Placed(slot, target, seen.count, speed, 100),)
    there = seen.slots.get(slot)
    ready = seen.ready(target.key) if target.key != revision.key else 0
    gives_way = 1 if seen.lacks_long(seen.lack(target, there)) else 0
    # What failed, or was overtaken, takes no request and keeps no room; what served does, until there are enough others.
    served = bool(Trail.of(revision).served)
    stays = min(left, max(seen.count - ready - gives_way, 0)) if served else 0
    share = round(100 * ready / (ready + stays)) if stays else 100
    here = min(max(share, 1), 99) if stays else 100
    return (
        Placed(slot, target, seen.count, speed, here),
        Placed(away(slot), revision, stays, SURGE, 100 - here),
    )


def canary_slots(seen: Sight, good: Revision, asked: Revision, step: Advance, at_home: Slot) -> tuple[Placed, ...]:
    """The canary in the other slot, and as many pods fewer at home as are ready there: the sum stays the count.

    Where the canary finds no room for surgeWait, one more at home gives way.
    """
    other = away(at_home)
    ready = seen.ready(asked.key)
    gives_way = 1 if seen.lacks_long(seen.lack(asked, seen.slots.get(other))) else 0
    fewer = min(step.pods, ready + gives_way)
    weight = step.weight if ready else 0
    return (
        Placed(at_home, good, max(seen.count - fewer, 1), SURGE, 100 - weight),
        Placed(other, asked, step.pods, SURGE, weight),
    )


def _left_over(seen: Sight, slot: Slot) -> tuple[int | None, Revision | None]:
    """Count and revision of a slot that isn't needed any more; None where nothing is left of it."""
    state = seen.slots.get(slot)
    pods = [p for p in seen.view.pods if p["metadata"]["labels"].get(names.SLOT_LABEL) == slot]
    if state is None or not (state.count or pods):
        return None, None
    return state.count, next((r for r in seen.view.revisions if r.key == state.revision), None)
