"""Surge settings of a rollout: maxSurge and maxUnavailable of the Deployment in a slot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.control.rollout.observed import ObservedRollout
from halcyon.control.rollout.rollout_record import RolloutRecord, away
from halcyon.render.names import Slot
from halcyon.render.revision import Revision


@dataclass(frozen=True)
class SurgeSettings:
    """Strategy of a rollout, with the parameters of the Deployment that implement it."""

    strategy: str
    """Name of the strategy: Surge or Replace."""
    max_surge: int
    max_unavailable: int
    why: str = ""
    """Reason why the strategy is Replace; empty for Surge."""


SURGE = SurgeSettings("Surge", max_surge=1, max_unavailable=0)


# strategy   under way with Replace   unschedulable for       result
#                                     surgeTimeout
# Surge      -                        -                       Surge
# Replace    -                        -                       Replace
# Auto       the only serving pod would go                    Surge: only the strategy Replace allows a time without a server
# others     yes                      -                       Replace: changing back to Surge would start pods in vain
# others     no                       yes                     Replace
# others     no                       no                      Surge
#
# Under way: the slot has pods of another revision, or the other slot still has pods that are being replaced.
def pace(seen: ObservedRollout, target: Revision, at: Slot) -> SurgeSettings:
    """Return the surge settings for a slot that changes to this revision.

    They also apply to removals from the other slot.
    """
    strategy = seen.spec.rollout.strategy
    if strategy == "Surge":
        return SURGE
    slot, beside = seen.slots.get(at), bool(seen.live_in(away(at)))
    lack = seen.lack(target, slot)
    # Keep the settings between reconciles: while a new pod is about to use freed capacity, new settings would remove another pod.
    sticks = slot is not None and (beside or not slot.complete) and slot.max_surge == 0
    why = "spec.rollout.strategy is Replace"
    if strategy != "Replace":
        if not (sticks or seen.lacks_long(lack)) or (strategy == "Auto" and _serves_alone(seen, begun=sticks)):
            return SURGE
        why = RolloutRecord.of(target).why_replacing
        if lack is not None and not sticks:
            waited = f"no capacity for an additional pod was available for {seen.spec.rollout.surge_timeout}: "
            why = lack.message if lack.is_certain else waited + lack.message
    if sticks and slot is not None:
        floor = slot.count - slot.max_unavailable
    else:
        # Remove one serving pod: removing pods that are themselves unschedulable would free nothing.
        unschedulable_pods = seen.short(target, slot) if beside else seen.unschedulable_pods(target, slot)
        floor = seen.count - unschedulable_pods - 1
    return SurgeSettings("Replace", max_surge=0, max_unavailable=max(1, seen.count - floor), why=why)


def _serves_alone(seen: ObservedRollout, *, begun: bool) -> bool:
    """Return whether the strategy Replace would remove the only serving pod.

    It wouldn't if a replacement has begun and several pods are desired. The only ready pod is then one of several that
    change their revision.
    """
    return sum(seen.ready(key) for key in seen.of) == 1 and not (begun and seen.count > 1)
