"""Events for a ModelDeployment, derived from changes in its status. A change in numbers or messages alone causes no event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from halcyon.kube.event_recorder import NewEvent


# condition      before          after        event
# Accepted       any             False        Warning, its reason
# Stalled        absent, other   True         Warning, its reason (if Accepted isn't the cause)
# Ready          not True        True         Normal
# Ready          True            not True     Warning, its reason
# BalancerReady  other        any, and      Warning, BalancerDegraded
#                reason       BalancerDegraded
# capacity       not ignored    ignored      Normal, CapacityIgnored
# a decision     absent          present      Normal, ScaledUp or ScaledDown (Recommended if not Active)
# rollout        no reason to    a reason     Normal, ReplacingPods (unless the spec demands it)
#                replace pods
# rollout        no canary, or   waits for    Normal, CanaryPaused
#                not paused at   a person
#                this step
# rollout        not Blocked     Blocked      Warning, RolloutBlocked (unless Stalled has that reason)
def status_events(
    before: Mapping[str, Any], after: Mapping[str, Any], spec: Mapping[str, Any] | None = None
) -> list[NewEvent]:
    """Return the Events for the change from the status `before` to the status `after` of a model with this spec."""
    old = {c["type"]: c for c in before.get("conditions") or ()}
    new = {c["type"]: c for c in after.get("conditions") or ()}

    def changed(kind: str) -> bool:
        before, after = old.get(kind, {}), new.get(kind, {})
        return bool((before.get("status"), before.get("reason")) != (after.get("status"), after.get("reason")))

    events = []
    accepted, stalled, ready = new.get("Accepted", {}), new.get("Stalled", {}), new.get("Ready", {})
    if accepted.get("status") == "False" and changed("Accepted"):
        events.append(NewEvent("Warning", accepted["reason"], accepted["message"]))
    elif stalled and changed("Stalled"):
        events.append(NewEvent("Warning", stalled["reason"], stalled["message"]))
    was_ready = old.get("Ready", {}).get("status") == "True"
    if ready.get("status") == "True" and not was_ready:
        events.append(NewEvent("Normal", ready["reason"], ready["message"]))
    elif was_ready and ready.get("status") not in {None, "True"} and not events:
        events.append(NewEvent("Warning", ready["reason"], ready["message"]))
    balancer = new.get("BalancerReady", {})
    # If BalancerDegraded is why the model isn't Ready, the event for Ready has this reason already.
    reported = {event.reason for event in events}
    if balancer.get("reason") == "BalancerDegraded" not in reported and changed("BalancerReady"):
        events.append(NewEvent("Warning", balancer["reason"], balancer["message"]))
    ignored = (after.get("capacity") or {}).get("ignored")
    if ignored and not (before.get("capacity") or {}).get("ignored"):
        events.append(NewEvent("Normal", "CapacityIgnored", ignored))
    reported = {event.reason for event in events}
    is_requested = ((spec or {}).get("rollout") or {}).get("strategy") == "Replace"
    events += _rollout(before.get("rollout") or {}, after.get("rollout") or {}, is_requested, reported=reported)
    return [*events, *_decisions(before.get("scaling") or {}, after.get("scaling") or {})]


def _rollout(
    before: Mapping[str, Any], after: Mapping[str, Any], is_requested: bool, *, reported: set[str]
) -> list[NewEvent]:
    """Return the Events of a rollout: it begins to replace pods, its canary pauses, or it becomes blocked.

    If `is_requested`, the spec demands the replacement of pods, which then needs no Event.
    """
    events = []
    why = after.get("strategyReason")
    if why and not is_requested and not before.get("strategyReason"):
        text = f"the rollout replaces pods one at a time and deletes each old pod before its successor is ready: {why}"
        events.append(NewEvent("Normal", "ReplacingPods", text))
    old, new = (rollout.get("canary") or {} for rollout in (before, after))
    if new.get("paused") and (not old.get("paused") or old.get("step") != new.get("step")):
        events.append(NewEvent("Normal", "CanaryPaused", after.get("message", "")))
    blocked = after.get("phase") == "Blocked" != before.get("phase")
    if blocked and "RolloutBlocked" not in reported:
        events.append(NewEvent("Warning", "RolloutBlocked", after.get("message", "")))
    return events


def _decisions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[NewEvent]:
    """Return an Event for each new entry of `status.scaling.decisions`, oldest first."""
    reported = {json.dumps(decision, sort_keys=True) for decision in before.get("decisions") or ()}
    events = []
    for decision in reversed(after.get("decisions") or ()):
        if json.dumps(decision, sort_keys=True) in reported:
            continue
        reason = "ScaledUp" if decision["after"] > decision["before"] else "ScaledDown"
        if after.get("mode") != "Active":
            reason = "Recommended"
        text = f"desired replicas changed from {decision['before']} to {decision['after']}: {decision['why']}"
        events.append(NewEvent("Normal", reason, text))
    return events
