"""Events about a ModelDeployment, derived from a change of its status: few, and on changes of conditions only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from halcyon.kube.event_recorder import NewEvent


# condition      before          after        event
# Accepted       any             False        Warning, its reason
# Stalled        absent, other   True         Warning, its reason (where Accepted isn't the cause)
# Ready          not True        True         Normal
# Ready          True            not True     Warning, its reason
# BalancerReady  other        any, and      Warning, BalancerTrouble
#                reason       BalancerTrouble
# a decision     not there       there        Normal, ScaledUp or ScaledDown (Recommended where nothing is done)
# rollout        no reason to    a reason     Normal, ReplacingPods
#                replace pods
# rollout        not Blocked     Blocked      Warning, RolloutBlocked (where Stalled hasn't said so)
def happenings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[NewEvent]:
    """What a change of status is worth telling."""
    old = {c["type"]: c for c in before.get("conditions") or ()}
    new = {c["type"]: c for c in after.get("conditions") or ()}

    def changed(kind: str) -> bool:
        a, b = old.get(kind, {}), new.get(kind, {})
        return bool((a.get("status"), a.get("reason")) != (b.get("status"), b.get("reason")))

    found = []
    accepted, stalled, ready = new.get("Accepted", {}), new.get("Stalled", {}), new.get("Ready", {})
    if accepted.get("status") == "False" and changed("Accepted"):
        found.append(NewEvent("Warning", accepted["reason"], accepted["message"]))
    elif stalled and changed("Stalled"):
        found.append(NewEvent("Warning", stalled["reason"], stalled["message"]))
    was_ready = old.get("Ready", {}).get("status") == "True"
    if ready.get("status") == "True" and not was_ready:
        found.append(NewEvent("Normal", ready["reason"], ready["message"]))
    elif was_ready and ready.get("status") != "True" and not found:
        found.append(NewEvent("Warning", ready["reason"], ready["message"]))
    balancer = new.get("BalancerReady", {})
    # Where it makes the whole not Ready, that has been told.
    told = {happening.reason for happening in found}
    if balancer.get("reason") == "BalancerTrouble" not in told and changed("BalancerReady"):
        found.append(NewEvent("Warning", balancer["reason"], balancer["message"]))
    found += _rollout(before.get("rollout") or {}, after.get("rollout") or {}, told={f.reason for f in found})
    return [*found, *_decisions(before.get("scaling") or {}, after.get("scaling") or {})]


def _rollout(before: Mapping[str, Any], after: Mapping[str, Any], *, told: set[str]) -> list[NewEvent]:
    """What a rollout does that nobody asked for in so many words."""
    found = []
    why = after.get("strategyReason")
    if why and why.startswith("no room") and not before.get("strategyReason"):
        text = f"pods of the old revision go before those of the new are ready, one at a time: {why}"
        found.append(NewEvent("Normal", "ReplacingPods", text))
    blocked = after.get("phase") == "Blocked" != before.get("phase")
    if blocked and "RolloutBlocked" not in told:
        found.append(NewEvent("Warning", "RolloutBlocked", after.get("message", "")))
    return found


def _decisions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[NewEvent]:
    """New changes of the count asked for, the oldest first."""
    told = {json.dumps(decision, sort_keys=True) for decision in before.get("decisions") or ()}
    new = [d for d in reversed(after.get("decisions") or ()) if json.dumps(d, sort_keys=True) not in told]
    found = []
    for decision in new:
        reason = "ScaledUp" if decision["after"] > decision["before"] else "ScaledDown"
        if after.get("mode") != "Active":
            reason = "Recommended"
        text = f"from {decision['before']} to {decision['after']}: {decision['why']}"
        found.append(NewEvent("Normal", reason, text))
    return found
