"""Builder of the report on a model's number of replicas from a ModelDeployment. Pure.

The report shows the operator's status and evaluates nothing itself. Another version of the operator may have written
the status, so missing and malformed fields are skipped. Out of scope: reading the resource (`commands.explain`), the
fields of a report (`report`) and its layout (`report_text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from halcyon.api import user_annotations
from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import SpecError, parse
from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import InForce, Opening, in_force
from halcyon_cli.explain import advice, model_state
from halcyon_cli.explain.report import (
    Note,
    Part,
    PodCounts,
    ReplicaBounds,
    Report,
    ShownCapacity,
    ShownChange,
    ShownLimit,
    ShownLine,
    ShownSignal,
    ShownWindow,
)
from halcyon_cli.kube import fields
from halcyon_cli.kube.free_capacity import FreeCapacity, insufficient_resources

LIMITS = {
    "min": "no fewer replicas are allowed",
    "max": "no more replicas are allowed",
    "hold": "as many were needed recently",
    "veto": "GPU utilization is too high for fewer",
    "answers": "no fewer have been seen to answer as much",
    "shared": "the pods share a limit, so more would answer no more",
    "idle": "no requests",
    "learning": "too few measurements yet",
    "unknown": "a signal is missing or implausible",
    "quota": "the namespace's ResourceQuotas allow no more",
    "budget": "the site's GPU budget allows no more",
    "site": "the site has stopped scaling down",
    "stabilisation": "the stabilization window of the HPA behavior",
    "pace": "the scaling policies of the HPA behavior",
    "off": "spec.replicas is 0, which disables scaling",
}
"""Meaning of each value in `status.scaling.limitedBy`."""
_COUNT_PREFIX = re.compile(r"^\d+ replicas?(?: \([^)]*\))?: ")
"""Pattern of the numbers of replicas at the start of a decision's message. They are removed, because the report has
them in fields of its own."""
_LIMITED = re.compile(r"^\d+ replicas?, (although \d+ replicas? (?:is|are) desired: .*)$", re.DOTALL)
"""Pattern of the message of a decision that is limited by something other than the planner or the HPA's rules."""


@dataclass(frozen=True)
class _ScalingState:
    """Parts of a ModelDeployment that concern its replicas."""

    spec: Mapping[str, Any]
    """Field spec.scaling; empty if the spec has no such field."""
    status: Mapping[str, Any]
    """Field status.scaling; empty if the status has no such field."""
    conditions: Mapping[str, Mapping[str, Any]]
    """The conditions of the status, by type."""
    replicas: int
    desired: int | None
    why: str | None
    user_reason: str
    """Reason that a user gave for the replicas or for a pause; may be empty."""

    def has(self, condition: str) -> bool:
        """Return True if the status of this condition is True."""
        return self.conditions.get(condition, {}).get("status") == "True"

    def message(self, condition: str) -> str:
        """Return the message of this condition."""
        return fields.text(self.conditions.get(condition, {}).get("message")) or ""


def report(resource: Mapping[str, Any], now: datetime, capacity: Sequence[FreeCapacity] = ()) -> Report:
    """Build the report for the time `now`, which must have a time zone.

    `capacity` is the free capacity of the resources that unschedulable pods are waiting for.
    """
    meta, spec, status = (fields.mapping(resource.get(name)) for name in ("metadata", "spec", "status"))
    scaling_spec, scaling = fields.mapping(spec.get("scaling")), fields.mapping(status.get("scaling"))
    limits = _bounds(str(meta.get("name")), spec, now) if scaling_spec else None
    replicas, conditions = replicas_in_force(resource), model_state.conditions(resource)
    state = _ScalingState(
        spec=scaling_spec,
        status=scaling,
        conditions=conditions,
        replicas=replicas,
        desired=fields.count(scaling.get("desired")) if scaling_spec else None,
        why=_reason(scaling.get("why")),
        user_reason=user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}),
    )
    headline = _headline(state)
    return Report(
        namespace=str(meta.get("namespace")),
        name=str(meta.get("name")),
        headline=headline,
        replicas=replicas,
        desired=state.desired,
        why=state.why,
        policy=fields.text(scaling.get("policy")),
        mode=fields.text(scaling.get("mode")),
        actuator=fields.text(scaling.get("actuator")),
        actuator_reason=fields.text(scaling.get("actuatorReason")),
        decided_at=fields.time(scaling.get("decidedAt")),
        limits=limits,
        signals=tuple(_signals(scaling)),
        parts=_parts(scaling),
        limited_by=tuple(ShownLimit(name, LIMITS.get(name, "")) for name in _limited_by(scaling)),
        capacity=_capacity(status),
        pods=_pods(status, replicas),
        start=_start(status, replicas),
        free_capacity=tuple(capacity),
        notes=(*_outdated(meta, status), *_notes(state, headline)),
        decisions=tuple(_decisions(scaling)),
        advice=advice.read(status),
    )


def insufficient_for(resource: Mapping[str, Any]) -> list[str]:
    """Return the extended resources that unschedulable pods wait for, from the scheduler's message in the status."""
    status = fields.mapping(resource.get("status"))
    if not _number(fields.mapping(status.get("pods")).get("unschedulable"), 0):
        return []
    return insufficient_resources(
        fields.text(condition.get("message")) or "" for condition in fields.mappings(status.get("conditions"))
    )


# spec.scaling   external writer   decision   mode        a signal is unknown   headline, after the replicas
# none           no                -          -           -                     fixed
# any            yes               none       -           -                     external, and by whom
# there          yes               there      -           -                     the desired replicas
# there          no                none       -           -                     why there is no decision
# there          no                there      Paused      -                     the desired replicas
# there          no                there      Recommend   -                     the recommended replicas
# there          no                there      Active      yes, and it stays     held
# there          no                there      Active      else                  the desired replicas
def _headline(state: _ScalingState) -> str:
    current = f"{state.replicas} replica{'' if state.replicas == 1 else 's'}"
    reason_suffix = f" ({state.user_reason})" if state.user_reason else ""
    if state.desired is None and state.has("AutoscalerConflict"):
        return f"{current}, external autoscaler: {state.message('AutoscalerConflict')}"
    if not state.spec:
        return f"{current}, fixed{reason_suffix}: spec.scaling is not set, so spec.replicas applies"
    if state.desired is None:
        return f"{current}{reason_suffix}; {_undecided(state)}"
    reason = f": {state.why}" if state.why else ""
    if state.has("AutoscalerConflict"):
        return f"{current}, external writer; {state.desired} desired{reason}"
    mode = state.status.get("mode")
    if mode == "Paused":
        return f"{current}, paused{reason_suffix}; {state.desired} desired{reason}"
    if mode == "Recommend":
        return f"{current}; {state.desired} recommended{reason}"
    if state.desired != state.replicas:
        return f"{current}, {state.desired} desired{reason}"
    if (limited := _LIMITED.match(state.why or "")) is not None:
        return f"{current}, {limited[1]}"
    return f"{current}, {'held' if 'unknown' in _limited_by(state.status) else 'as desired'}{reason}"


def _undecided(state: _ScalingState) -> str:
    if not state.conditions:
        return "the operator has not processed it yet; see whether it runs: kubectl get pods -A -l app.kubernetes.io/name=halcyon"
    text, message = "nothing was decided yet", state.message("ScalingActive")
    return text if message in {"", text} else f"{text}: {message}"


def _bounds(name: str, spec: Mapping[str, Any], now: datetime) -> ReplicaBounds:
    scaling_spec = fields.mapping(spec.get("scaling"))
    low, high = _number(scaling_spec.get("minReplicas"), 1), _number(scaling_spec.get("maxReplicas"), 1)
    plain = ReplicaBounds(low, high, low, high)
    try:
        parsed = parse(name, spec)
        schedule_state = in_force(schedules(parsed), now.timestamp())
    except (SpecError, ValueError):
        return plain  # the condition Accepted already reports this
    if defaults.policy(parsed) != "Planner":
        return plain
    upper = high if schedule_state.high is None else min(high, schedule_state.high)
    lower = low if schedule_state.low is None else max(low, schedule_state.low)
    return ReplicaBounds(
        min(lower, upper), upper, low, high, *_windows(parsed, schedule_state), schedule_state.conflict
    )


def _windows(spec: Spec, schedule_state: InForce) -> tuple[tuple[ShownWindow, ...], ShownWindow | None]:
    zones = {schedule.name: ZoneInfo(schedule.time_zone) for schedule in schedules(spec)}

    def window(opening: Opening) -> ShownWindow:
        opens, closes = (datetime.fromtimestamp(at, zones[opening.name]) for at in (opening.begin, opening.end))
        return ShownWindow(opening.name, opens, closes, opening.low, opening.high)

    return tuple(map(window, schedule_state.open)), None if schedule_state.upcoming is None else window(
        schedule_state.upcoming
    )


def _signals(scaling: Mapping[str, Any]) -> Iterator[ShownSignal]:
    for signal in fields.mappings(scaling.get("signals")):
        yield ShownSignal(
            name=str(signal.get("name")),
            value=fields.text(signal.get("value")),
            target=fields.text(signal.get("target")),
            proposal=fields.count(signal.get("proposal")),
            observed_at=fields.time(signal.get("observedAt")),
            source=str(signal.get("source") or ""),
            missing=fields.text(signal.get("missing")),
        )


def _parts(scaling: Mapping[str, Any]) -> tuple[Part, ...]:
    parts = fields.mappings(scaling.get("parts"))
    counts = [_number(part.get("replicas"), 0) for part in parts]
    # The first of equal parts decides: the operator writes them in that order.
    winner = counts.index(max(counts)) if any(counts) else None
    return tuple(
        Part(str(part.get("name")), counts[n], n == winner, str(part.get("why") or "")) for n, part in enumerate(parts)
    )


def _capacity(status: Mapping[str, Any]) -> ShownCapacity | None:
    capacity = fields.mapping(status.get("capacity"))
    source, ignored = fields.text(capacity.get("source")), fields.text(capacity.get("ignored"))
    if source is None and ignored is None:
        return None
    return ShownCapacity(
        source,
        fields.text(capacity.get("requestsPerSecond")),
        fields.text(capacity.get("why")) or "",
        fields.text(capacity.get("sustainedRequestsPerSecond")),
        tuple(_lines(capacity)),
        fields.time(capacity.get("observedAt")),
        fields.text(capacity.get("revision")),
        fields.text(capacity.get("image")),
        fields.text(capacity.get("gpuProduct")),
        ignored,
    )


def _lines(capacity: Mapping[str, Any]) -> Iterator[ShownLine]:
    for line in fields.mappings(capacity.get("lines")):
        yield ShownLine(
            _number(line.get("instances"), 1),
            str(line.get("constantMilliseconds")),
            str(line.get("perRowMilliseconds")),
            _number(line.get("maxBatchSize"), 1),
        )


def _pods(status: Mapping[str, Any], desired: int) -> PodCounts | None:
    replicas = fields.mapping(status.get("pods"))
    if not replicas:
        return None
    counted = ("total", "ready", "unready", "unschedulable")
    total, ready, unready, stuck = (_number(replicas.get(name), 0) for name in counted)
    return PodCounts(desired, ready, max(total - ready - unready - stuck, 0), unready, stuck, max(desired - total, 0))


def _start(status: Mapping[str, Any], desired: int) -> str | None:
    """Return the progress of starting pods and the duration of the last start, or None if no pod is starting."""
    counts, last_start = (fields.mapping(status.get(name)) for name in ("pods", "coldStart"))
    ready, starting = (
        _number(counts.get("ready"), 0),
        [(name, _number(counts.get(name), 0)) for name in _STARTING_STATES],
    )
    phases = [f"{count} {name}" for name, count in starting if count]
    if ready >= desired or not phases:
        return None
    decisions = fields.mappings(fields.mapping(status.get("scaling")).get("decisions"))
    waking = not ready and bool(decisions) and decisions[0].get("before") == 0
    text = ("waking from zero: " if waking else "") + ", ".join(phases)
    if (seconds := fields.count(last_start.get("seconds"))) is None:
        return text if waking or any(count for name, count in starting if name != "pending") else None
    parts = [(name, fields.count(last_start.get(f"{name}Seconds"))) for name in _PARTS_OF_START]
    breakdown = ", ".join(f"{value} s {name}" for name, value in parts if value)
    return f"{text}; the last start took {seconds} s" + (f" ({breakdown})" if breakdown else "")


_STARTING_STATES = ("pending", "pulling", "fetching", "loading")
_PARTS_OF_START = ("scheduling", "pulling", "fetching", "loading")
_EXPECTED = {
    "Accepted": "True",
    "ModelLoaded": "True",
    "ServersReady": "True",
    "AutoscalerConflict": "False",
    "ScalingActive": "True",
    "Stalled": "False",
    "FieldIgnored": "False",
    "TimeoutMismatch": "False",
}
"""Conditions that affect the replicas, with the normal status of each. A condition with the status Unknown is
skipped."""
_IN_HEADLINE = {"Paused", "Recommending"}
_COUNT_ONLY = re.compile(r"\d+ of \d+ (?:server|model pod)s (?:is|are) ready")


def _notes(state: _ScalingState, headline: str) -> Iterator[Note]:
    """Yield a note for each condition with an abnormal status. Repeated messages are left out."""
    seen: set[str] = set()
    for kind, expected in _EXPECTED.items():
        condition, message = state.conditions.get(kind, {}), state.message(kind)
        is_true, reason = (str(condition.get(name) or "") for name in ("status", "reason"))
        if is_true not in {"True", "False"} or is_true == expected or reason in _IN_HEADLINE:
            continue
        if message in seen or message in headline or _COUNT_ONLY.fullmatch(message):
            continue
        seen.add(message)
        yield Note(kind, is_true, reason, message)
    # A note is shown only for a blocked rollout.
    if (state.conditions.get("Reconciling") or {}).get("reason") == "RolloutBlocked":
        yield Note("Reconciling", "True", "RolloutBlocked", state.message("Reconciling"))


def _outdated(meta: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Note]:
    """Yield a note for each reason why the status, and therefore the report, may be out of date."""
    if meta.get("deletionTimestamp"):
        yield Note("Deleted", "True", "BeingDeleted", "the ModelDeployment is being deleted")
    generation, observed = meta.get("generation"), status.get("observedGeneration")
    if observed and generation != observed:
        text = f"the spec has generation {generation}, and this report is of {observed}: the operator hasn't processed the last change yet"
        yield Note("Behind", "True", "SpecChanged", text)


def _decisions(scaling: Mapping[str, Any]) -> Iterator[ShownChange]:
    for change in fields.mappings(scaling.get("decisions")):
        before, after = (_number(change.get(name), 0) for name in ("before", "after"))
        yield ShownChange(fields.time(change.get("time")), before, after, _reason(change.get("why")) or "")


def _limited_by(scaling: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in fields.sequence(scaling.get("limitedBy"))]


def _reason(why: object) -> str | None:
    return fields.text(_COUNT_PREFIX.sub("", fields.text(why) or ""))


def _number(value: object, fallback: int) -> int:
    value = fields.count(value)
    return fallback if value is None else value
