"""How far the pods of a slot may exceed its count and fall short of it while another revision comes: the Deployment's parameters.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.control.rollout.observed import ObservedRollout
from halcyon.control.rollout.rollout_record import RolloutRecord, away
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class SurgeSettings:
    """The Deployment's own parameters, and what they amount to."""

    strategy: str
    """Surge or Replace."""
    max_surge: int
    max_unavailable: int
    why: str = ""
    """Why it replaces."""


SURGE = SurgeSettings("Surge", max_surge=1, max_unavailable=0)


# strategy   under way with Replace   no room for surgeWait   pace
# Surge      -                        -                       Surge
# Replace    -                        -                       Replace
# others     yes                      -                       Replace: back and forth would start pods for nothing
# others     no                       yes                     Replace
# others     no                       no                      Surge
#
# Under way: the slot has pods of another revision, or the other slot still has some, whose place its own take.
def pace(seen: ObservedRollout, target: Revision, at: Slot) -> SurgeSettings:
    """The pace at which the slot becomes of this revision, and at which the other one's pods give way to it."""
    strategy = seen.spec.rollout.strategy
    if strategy == "Surge":
        return SURGE
    slot, beside = seen.slots.get(at), bool(seen.live_in(away(at)))
    lack = seen.lack(target, slot)
    # Kept where it is from look to look: reckoned anew while a pod's room is on its way to its successor, it would cost another one.
    sticks = slot is not None and (beside or not slot.complete) and slot.max_surge == 0
    why = "spec.rollout.strategy is Replace"
    if strategy != "Replace":
        if not (sticks or seen.lacks_long(lack)):
            return SURGE
        why = RolloutRecord.of(target).why_replacing
        if lack is not None and not sticks:
            why = f"no room to surge for {seen.spec.rollout.surge_wait}: {lack.message}"
    if sticks and slot is not None:
        floor = slot.count - slot.max_unavailable
    else:
        # One serving pod less than there are: where more are wanted than there is room for, those without can't go.
        roomless = seen.short(target, slot) if beside else seen.roomless(target, slot)
        floor = seen.count - roomless - 1
    return SurgeSettings("Replace", max_surge=0, max_unavailable=max(1, seen.count - floor), why=why)
