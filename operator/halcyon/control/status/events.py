"""Events for a ModelDeployment, derived from changes in its status. A change in numbers or messages alone causes no event."""

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

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halcyon.kube.event_recorder import NewEvent

_Json = Mapping[str, Any]


@dataclass(frozen=True)
class _ConditionChange:
    """Change of one condition. `old` and `new` are empty if the status doesn't have the condition."""

    old: _Json
    new: _Json

    @property
    def has_changed(self) -> bool:
        """Whether the status or the reason of the condition has changed."""
        return any(self.old.get(name) != self.new.get(name) for name in ("status", "reason"))

    def event(self, type_: str) -> NewEvent:
        """Return an Event with the reason and the message of the new condition."""
        return NewEvent(type_, self.new["reason"], self.new["message"])


def status_events(before: _Json, after: _Json, spec: _Json | None = None) -> list[NewEvent]:
    """Return the Events for the change from the status `before` to the status `after` of a model with this spec."""
    old, new = ({c["type"]: c for c in status.get("conditions") or ()} for status in (before, after))
    changes = {kind: _ConditionChange(old.get(kind, {}), new.get(kind, {})) for kind in _CONDITIONS}
    old_rollout, new_rollout = before.get("rollout") or {}, after.get("rollout") or {}

    events = _stalled(changes["Accepted"], changes["Stalled"])
    events += _readiness(changes["Ready"], is_explained=bool(events))
    # If BalancerDegraded is why the model isn't Ready, the event for Ready has this reason already.
    events += _unreported(_degraded_balancer(changes["BalancerReady"]), events)
    events += _ignored_capacity(before.get("capacity") or {}, after.get("capacity") or {})
    events += _replaced_pods(old_rollout, new_rollout, spec or {})
    events += _paused_canary(old_rollout, new_rollout)
    events += _unreported(_blocked_rollout(old_rollout, new_rollout), events)
    events += _decisions(before.get("scaling") or {}, after.get("scaling") or {})
    return events


_CONDITIONS = ("Accepted", "Stalled", "Ready", "BalancerReady")
"""Conditions whose changes cause Events."""


def _unreported(events: Iterable[NewEvent], reported: Iterable[NewEvent]) -> list[NewEvent]:
    """Return the Events whose reasons no Event in `reported` has."""
    reasons = {event.reason for event in reported}
    return [event for event in events if event.reason not in reasons]


def _stalled(accepted: _ConditionChange, stalled: _ConditionChange) -> list[NewEvent]:
    """Return the Event for a model that a user must correct: its spec is rejected, or it is stalled otherwise."""
    if accepted.new.get("status") == "False" and accepted.has_changed:
        return [accepted.event("Warning")]
    return [stalled.event("Warning")] if stalled.new and stalled.has_changed else []


def _readiness(ready: _ConditionChange, *, is_explained: bool) -> list[NewEvent]:
    """Return the Event for a model that becomes ready, or that is no longer ready.

    The latter causes none if the status doesn't have the condition, or if another Event has the reason (`is_explained`).
    """
    was_ready, status = ready.old.get("status") == "True", ready.new.get("status")
    if status == "True":
        return [] if was_ready else [ready.event("Normal")]
    return [ready.event("Warning")] if was_ready and status is not None and not is_explained else []


def _degraded_balancer(balancer: _ConditionChange) -> list[NewEvent]:
    is_degraded = balancer.new.get("reason") == "BalancerDegraded"
    return [balancer.event("Warning")] if is_degraded and balancer.has_changed else []


def _ignored_capacity(before: _Json, after: _Json) -> list[NewEvent]:
    ignored = after.get("ignored")
    return [NewEvent("Normal", "CapacityIgnored", ignored)] if ignored and not before.get("ignored") else []


def _replaced_pods(before: _Json, after: _Json, spec: _Json) -> list[NewEvent]:
    """Return the Event for a rollout that begins to replace pods, unless the spec requests their replacement."""
    why = after.get("strategyReason")
    is_requested = (spec.get("rollout") or {}).get("strategy") == "Replace"
    if not why or is_requested or before.get("strategyReason"):
        return []
    text = f"the rollout replaces pods one at a time and deletes each old pod before its successor is ready: {why}"
    return [NewEvent("Normal", "ReplacingPods", text)]


def _paused_canary(before: _Json, after: _Json) -> list[NewEvent]:
    old, new = (rollout.get("canary") or {} for rollout in (before, after))
    was_paused_here = old.get("paused") and old.get("step") == new.get("step")
    return (
        [NewEvent("Normal", "CanaryPaused", after.get("message", ""))]
        if new.get("paused") and not was_paused_here
        else []
    )


def _blocked_rollout(before: _Json, after: _Json) -> list[NewEvent]:
    is_blocked = after.get("phase") == "Blocked" != before.get("phase")
    return [NewEvent("Warning", "RolloutBlocked", after.get("message", ""))] if is_blocked else []


def _decisions(before: _Json, after: _Json) -> list[NewEvent]:
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
