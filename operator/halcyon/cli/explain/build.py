"""A ModelDeployment, as the API server has it -> why it has as many replicas as it has. Pure.

The status is read, never judged anew: what is told here is what the operator has written. It may be of another version, so
what lacks or has another form is left out. Not here: where the resource comes from (`explain`), what a report holds
(`report`) and how it looks (`text`).
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
from halcyon.cli.explain.report import (
    Note,
    Part,
    PodCounts,
    ReplicaBounds,
    Report,
    ShownChange,
    ShownLimit,
    ShownSignal,
    ShownWindow,
)
from halcyon.cli.kube import fields
from halcyon.cli.kube.free_capacity import FreeCapacity, insufficient_resources
from halcyon.scaling.planner.objectives import schedules
from halcyon.scaling.schedules import InForce, Opening, in_force

LIMITS = {
    "min": "no fewer are allowed",
    "max": "no more are allowed",
    "hold": "as many were needed a while ago",
    "veto": "the GPUs are too busy for fewer",
    "idle": "nobody asks",
    "learning": "too little is known yet",
    "unknown": "a signal is missing or can't be believed",
    "quota": "the namespace's ResourceQuotas leave no room for more",
    "budget": "the site's GPU budget leaves no more",
    "stabilisation": "a recommendation within its window says so",
    "pace": "the pace of scaling allows no more at once",
    "off": "spec.replicas is 0, which switches scaling off",
}
"""What each name in `status.scaling.limitedBy` means."""
_COUNT_PREFIX = re.compile(r"^\d+ replicas?(?: \([^)]*\))?: ")
"""How a decision's sentence begins; the counts are told apart from it."""
_LIMITED = re.compile(r"^\d+ replicas?, (where \d+ replicas? are wanted: .*)$", re.DOTALL)
"""A decision that something around the model has limited."""


@dataclass(frozen=True)
class _ScalingState:
    """What a resource says of its count."""

    spec: Mapping[str, Any]
    """spec.scaling; empty where there is none."""
    status: Mapping[str, Any]
    """status.scaling."""
    conditions: Mapping[str, Mapping[str, Any]]
    """By type."""
    replicas: int
    desired: int | None
    why: str | None
    user_reason: str
    """A person's, for a count or a pause; empty where nobody has given one."""

    def has(self, condition: str) -> bool:
        """Whether a condition is true."""
        return self.conditions.get(condition, {}).get("status") == "True"

    def message(self, condition: str) -> str:
        """What it says."""
        return fields.text(self.conditions.get(condition, {}).get("message")) or ""


def report(resource: Mapping[str, Any], now: datetime, capacity: Sequence[FreeCapacity] = ()) -> Report:
    """The report on a ModelDeployment at a time, which has a zone; `room` is what there is of what its pods lack."""
    meta, spec, status = (fields.mapping(resource.get(name)) for name in ("metadata", "spec", "status"))
    scaling_spec, scaling = fields.mapping(spec.get("scaling")), fields.mapping(status.get("scaling"))
    limits = _bounds(str(meta.get("name")), spec, now) if scaling_spec else None
    replicas = _number(spec.get("replicas"), 1)
    if limits is not None:
        # As the operator takes it: a count outside the limits is never in force.
        replicas = min(max(replicas, limits.min_replicas), limits.max_replicas)
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    if limits is None and conditions.get("AutoscalerConflict", {}).get("status") == "True":
        # An HPA on the Deployment writes past spec.replicas: its count is that of the pods.
        replicas = _number(fields.mapping(status.get("replicas")).get("total"), replicas)
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
        pods=_pods(status, replicas),
        start=_start(status, replicas),
        free_capacity=tuple(capacity),
        notes=(*_outdated(meta, status), *_notes(state, headline)),
        decisions=tuple(_decisions(scaling)),
    )


def insufficient_for(resource: Mapping[str, Any]) -> list[str]:
    """The extended resources that pods of a ModelDeployment find too little of, as its status has it from the scheduler."""
    status = fields.mapping(resource.get("status"))
    if not _number(fields.mapping(status.get("replicas")).get("unschedulable"), 0):
        return []
    return insufficient_resources(
        fields.text(one.get("message")) or "" for one in fields.mappings(status.get("conditions"))
    )


# spec.scaling   somebody else writes   decided   mode        a signal is unknown   the headline, after the count
# none           no                     -         -           -                     fixed
# any            yes                    no        -           -                     left to others, and whom
# there          yes                    yes       -           -                     what would be right
# there          no                     no        -           -                     why nothing was decided
# there          no                     yes       Paused      -                     what would be right
# there          no                     yes       Recommend   -                     what is recommended
# there          no                     yes       Active      yes, and it stays     held
# there          no                     yes       Active      else                  what is wanted
def _headline(state: _ScalingState) -> str:
    current = f"{state.replicas} replica{'' if state.replicas == 1 else 's'}"
    reason_suffix = f" ({state.user_reason})" if state.user_reason else ""
    if state.desired is None and state.has("AutoscalerConflict"):
        return f"{current}, left to others: {state.message('AutoscalerConflict')}"
    if not state.spec:
        return f"{current}, fixed{reason_suffix}: there is no spec.scaling, so spec.replicas is the count"
    if state.desired is None:
        return f"{current}{reason_suffix}; {_undecided(state)}"
    reason = f": {state.why}" if state.why else ""
    if state.has("AutoscalerConflict"):
        return f"{current}, written by others; {state.desired} would be right{reason}"
    mode = state.status.get("mode")
    if mode == "Paused":
        return f"{current}, paused{reason_suffix}; {state.desired} would be right{reason}"
    if mode == "Recommend":
        return f"{current}; {state.desired} recommended{reason}"
    if state.desired != state.replicas:
        return f"{current}, {state.desired} wanted{reason}"
    if (limited := _LIMITED.match(state.why or "")) is not None:
        return f"{current}, {limited[1]}"
    return f"{current}, {'held' if 'unknown' in _limited_by(state.status) else 'as wanted'}{reason}"


def _undecided(state: _ScalingState) -> str:
    if not state.conditions:
        return "the operator hasn't said anything of it yet. Does it run? kubectl get pods -A -l app.kubernetes.io/name=halcyon"
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
        return plain  # the condition Accepted says what is wrong
    if defaults.policy(parsed) != "Planner":
        return plain
    most = high if schedule_state.high is None else min(high, schedule_state.high)
    least = low if schedule_state.low is None else max(low, schedule_state.low)
    return ReplicaBounds(min(least, most), most, low, high, *_windows(parsed, schedule_state), schedule_state.conflict)


def _windows(spec: Spec, schedule_state: InForce) -> tuple[tuple[ShownWindow, ...], ShownWindow | None]:
    zones = {one.name: ZoneInfo(one.time_zone) for one in schedules(spec)}

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
    # Of equals the first has decided: the operator names them in that order.
    winner = counts.index(max(counts)) if any(counts) else None
    return tuple(
        Part(str(part.get("name")), counts[n], n == winner, str(part.get("why") or "")) for n, part in enumerate(parts)
    )


def _pods(status: Mapping[str, Any], desired: int) -> PodCounts | None:
    replicas = fields.mapping(status.get("replicas"))
    if not replicas:
        return None
    total, ready, stuck = (_number(replicas.get(name), 0) for name in ("total", "ready", "unschedulable"))
    return PodCounts(desired, ready, max(total - ready - stuck, 0), stuck, max(desired - total, 0))


def _start(status: Mapping[str, Any], desired: int) -> str | None:
    """What pods under way do, and what to expect of them; None where none is."""
    counts, last = (fields.mapping(status.get(name)) for name in ("replicas", "coldStart"))
    ready, doing = _number(counts.get("ready"), 0), [(name, _number(counts.get(name), 0)) for name in _UNDER_WAY]
    phases = [f"{count} {name}" for name, count in doing if count]
    if ready >= desired or not phases:
        return None
    decisions = fields.mappings(fields.mapping(status.get("scaling")).get("decisions"))
    waking = not ready and bool(decisions) and decisions[0].get("before") == 0
    text = ("waking from zero: " if waking else "") + ", ".join(phases)
    if (seconds := fields.count(last.get("seconds"))) is None:
        return text if waking or any(count for name, count in doing if name != "pending") else None
    parts = [(name, fields.count(last.get(f"{name}Seconds"))) for name in _PARTS_OF_START]
    breakdown = ", ".join(f"{value} s {name}" for name, value in parts if value)
    return f"{text}; the last start took {seconds} s" + (f" ({breakdown})" if breakdown else "")


_UNDER_WAY = ("pending", "pulling", "fetching", "loading")
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
"""Conditions that matter to the count. Unknown is no news: it says that there is none yet."""
_IN_HEADLINE = {"Paused", "Recommending"}
_COUNT_ONLY = re.compile(r"\d+ of \d+ servers are ready")


def _notes(state: _ScalingState, headline: str) -> Iterator[Note]:
    """Conditions that aren't as they should be, each sentence once."""
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
    # Progress is no news but where it has none.
    if (state.conditions.get("Reconciling") or {}).get("reason") == "RolloutBlocked":
        yield Note("Reconciling", "True", "RolloutBlocked", state.message("Reconciling"))


def _outdated(meta: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Note]:
    """What makes all of this old."""
    if meta.get("deletionTimestamp"):
        yield Note("Deleted", "True", "BeingDeleted", "the ModelDeployment is being deleted")
    generation, observed = meta.get("generation"), status.get("observedGeneration")
    if observed and generation != observed:
        text = f"the spec is of generation {generation}, and this is told of {observed}: the operator hasn't seen the last change yet"
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
