"""Surge settings of a rollout: maxSurge and maxUnavailable of the Deployment in a slot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.control.rollout.observed import ObservedRollout
from halcyon.control.rollout.rollout_record import RolloutRecord, other_slot
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
def surge_settings(observed: ObservedRollout, target: Revision, target_slot: Slot) -> SurgeSettings:
    """Return the surge settings for a slot that changes to this revision, and for removals from the other slot."""
    strategy = observed.spec.rollout.strategy
    if strategy == "Surge":
        return SURGE
    slot, is_split = observed.slots.get(target_slot), bool(observed.live_in(other_slot(target_slot)))
    unschedulable = observed.unschedulable_pod(target, slot)
    # Keep the settings between reconciles: while a new pod is about to use freed capacity, new settings would remove another pod.
    continues = slot is not None and (is_split or not slot.complete) and slot.max_surge == 0
    why = "spec.rollout.strategy is Replace"
    if strategy != "Replace":
        is_needed = continues or observed.has_surge_timed_out(unschedulable)
        if not is_needed or (strategy == "Auto" and _serves_alone(observed, has_begun=continues)):
            return SURGE
        why = RolloutRecord.of(target).why_replacing
        if unschedulable is not None and not continues:
            why, timeout = unschedulable.message, observed.spec.rollout.surge_timeout
            if not unschedulable.is_certain:
                why = f"no capacity for an additional pod was available for {timeout}: {why}"
    if continues and slot is not None:
        floor = slot.count - slot.max_unavailable
    else:
        # Remove one serving pod: removing pods that are themselves unschedulable would free nothing.
        waiting = observed.missing_pods(target, slot) if is_split else observed.unschedulable_pods(target, slot)
        floor = observed.count - waiting - 1
    return SurgeSettings("Replace", max_surge=0, max_unavailable=max(1, observed.count - floor), why=why)


def _serves_alone(observed: ObservedRollout, *, has_begun: bool) -> bool:
    """Return whether only one pod is ready, so that a removal by the Replace strategy would leave no serving pod.

    If several pods are desired and their replacement has begun, return False, because their successors are starting.
    """
    return sum(observed.ready(key) for key in observed.by_revision) == 1 and not (has_begun and observed.count > 1)
