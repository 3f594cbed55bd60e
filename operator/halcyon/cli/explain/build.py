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
from halcyon.cli.kube.free_capacity import FreeCapacity, lacking
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
_HEAD = re.compile(r"^\d+ replicas?(?: \([^)]*\))?: ")
"""How a decision's sentence begins; the counts are told apart from it."""
_CEILING = re.compile(r"^\d+ replicas?, (although \d+ replicas? are desired: .*)$", re.DOTALL)
"""A decision that something around the model has limited."""


@dataclass(frozen=True)
class _Read:
    """What a resource says of its count."""

    given: Mapping[str, Any]
    """spec.scaling; empty where there is none."""
    told: Mapping[str, Any]
    """status.scaling."""
    conditions: Mapping[str, Mapping[str, Any]]
    """By type."""
    replicas: int
    desired: int | None
    why: str | None
    given_reason: str
    """A person's, for a count or a pause; empty where nobody has given one."""

    def has(self, condition: str) -> bool:
        """Whether a condition is true."""
        return self.conditions.get(condition, {}).get("status") == "True"

    def message(self, condition: str) -> str:
        """What it says."""
        return fields.text(self.conditions.get(condition, {}).get("message")) or ""


def report(resource: Mapping[str, Any], now: datetime, room: Sequence[FreeCapacity] = ()) -> Report:
    """The report on a ModelDeployment at a time, which has a zone; `room` is what there is of what its pods lack."""
    meta, spec, status = (fields.mapping(resource.get(name)) for name in ("metadata", "spec", "status"))
    given, told = fields.mapping(spec.get("scaling")), fields.mapping(status.get("scaling"))
    limits = _limits(str(meta.get("name")), spec, now) if given else None
    replicas = _number(spec.get("replicas"), 1)
    if limits is not None:
        # As the operator takes it: a count outside the limits is never in force.
        replicas = min(max(replicas, limits.min_replicas), limits.max_replicas)
    conditions = {str(c.get("type")): c for c in fields.mappings(status.get("conditions"))}
    if limits is None and conditions.get("AutoscalerConflict", {}).get("status") == "True":
        # An HPA on the Deployment writes past spec.replicas: its count is that of the pods.
        replicas = _number(fields.mapping(status.get("replicas")).get("total"), replicas)
    read = _Read(
        given=given,
        told=told,
        conditions=conditions,
        replicas=replicas,
        desired=fields.count(told.get("desired")) if given else None,
        why=_reason(told.get("why")),
        given_reason=user_annotations.reason({"annotations": fields.mapping(meta.get("annotations"))}),
    )
    headline = _headline(read)
    return Report(
        namespace=str(meta.get("namespace")),
        name=str(meta.get("name")),
        headline=headline,
        replicas=replicas,
        desired=read.desired,
        why=read.why,
        policy=fields.text(told.get("policy")),
        mode=fields.text(told.get("mode")),
        actuator=fields.text(told.get("actuator")),
        actuator_reason=fields.text(told.get("actuatorReason")),
        decided_at=fields.time(told.get("decidedAt")),
        limits=limits,
        signals=tuple(_signals(told)),
        parts=_parts(told),
        limited_by=tuple(ShownLimit(name, LIMITS.get(name, "")) for name in _limited_by(told)),
        pods=_pods(status, replicas),
        start=_start(status, replicas),
        room=tuple(room),
        notes=(*_outdated(meta, status), *_notes(read, headline)),
        decisions=tuple(_decisions(told)),
    )


def lacks(resource: Mapping[str, Any]) -> list[str]:
    """The extended resources that pods of a ModelDeployment find too little of, as its status has it from the scheduler."""
    status = fields.mapping(resource.get("status"))
    if not _number(fields.mapping(status.get("replicas")).get("unschedulable"), 0):
        return []
    return lacking(fields.text(one.get("message")) or "" for one in fields.mappings(status.get("conditions")))


# spec.scaling   somebody else writes   decided   mode        a signal is unknown   the headline, after the count
# none           no                     -         -           -                     fixed
# any            yes                    no        -           -                     left to others, and whom
# there          yes                    yes       -           -                     what would be right
# there          no                     no        -           -                     why nothing was decided
# there          no                     yes       Paused      -                     what would be right
# there          no                     yes       Recommend   -                     what is recommended
# there          no                     yes       Active      yes, and it stays     held
# there          no                     yes       Active      else                  what is wanted
def _headline(read: _Read) -> str:
    have = f"{read.replicas} replica{'' if read.replicas == 1 else 's'}"
    because = f" ({read.given_reason})" if read.given_reason else ""
    if read.desired is None and read.has("AutoscalerConflict"):
        return f"{have}, left to others: {read.message('AutoscalerConflict')}"
    if not read.given:
        return f"{have}, fixed{because}: there is no spec.scaling, so spec.replicas is the count"
    if read.desired is None:
        return f"{have}{because}; {_undecided(read)}"
    reason = f": {read.why}" if read.why else ""
    if read.has("AutoscalerConflict"):
        return f"{have}, written by others; {read.desired} would be right{reason}"
    mode = read.told.get("mode")
    if mode == "Paused":
        return f"{have}, paused{because}; {read.desired} would be right{reason}"
    if mode == "Recommend":
        return f"{have}; {read.desired} recommended{reason}"
    if read.desired != read.replicas:
        return f"{have}, {read.desired} wanted{reason}"
    if (ceiling := _CEILING.match(read.why or "")) is not None:
        return f"{have}, {ceiling[1]}"
    return f"{have}, {'held' if 'unknown' in _limited_by(read.told) else 'as wanted'}{reason}"


def _undecided(read: _Read) -> str:
    if not read.conditions:
        return "the operator hasn't said anything of it yet. Does it run? kubectl get pods -A -l app.kubernetes.io/name=halcyon"
    text, said = "nothing was decided yet", read.message("ScalingActive")
    return text if said in {"", text} else f"{text}: {said}"


def _limits(name: str, spec: Mapping[str, Any], now: datetime) -> ReplicaBounds:
    given = fields.mapping(spec.get("scaling"))
    low, high = _number(given.get("minReplicas"), 1), _number(given.get("maxReplicas"), 1)
    plain = ReplicaBounds(low, high, low, high)
    try:
        parsed = parse(name, spec)
        found = in_force(schedules(parsed), now.timestamp())
    except (SpecError, ValueError):
        return plain  # the condition Accepted says what is wrong
    if defaults.policy(parsed) != "Planner":
        return plain
    most = high if found.high is None else min(high, found.high)
    least = low if found.low is None else max(low, found.low)
    return ReplicaBounds(min(least, most), most, low, high, *_windows(parsed, found), found.conflict)


def _windows(spec: Spec, found: InForce) -> tuple[tuple[ShownWindow, ...], ShownWindow | None]:
    zones = {one.name: ZoneInfo(one.time_zone) for one in schedules(spec)}

    def window(opening: Opening) -> ShownWindow:
        opens, closes = (datetime.fromtimestamp(at, zones[opening.name]) for at in (opening.begin, opening.end))
        return ShownWindow(opening.name, opens, closes, opening.low, opening.high)

    return tuple(map(window, found.open)), None if found.upcoming is None else window(found.upcoming)


def _signals(told: Mapping[str, Any]) -> Iterator[ShownSignal]:
    for one in fields.mappings(told.get("signals")):
        yield ShownSignal(
            name=str(one.get("name")),
            value=fields.text(one.get("value")),
            target=fields.text(one.get("target")),
            proposal=fields.count(one.get("proposal")),
            observed_at=fields.time(one.get("observedAt")),
            source=str(one.get("source") or ""),
            missing=fields.text(one.get("missing")),
        )


def _parts(told: Mapping[str, Any]) -> tuple[Part, ...]:
    found = fields.mappings(told.get("parts"))
    counts = [_number(one.get("replicas"), 0) for one in found]
    # Of equals the first has decided: the operator names them in that order.
    winner = counts.index(max(counts)) if any(counts) else None
    return tuple(
        Part(str(one.get("name")), counts[n], n == winner, str(one.get("why") or "")) for n, one in enumerate(found)
    )


def _pods(status: Mapping[str, Any], wanted: int) -> PodCounts | None:
    found = fields.mapping(status.get("replicas"))
    if not found:
        return None
    total, ready, stuck = (_number(found.get(name), 0) for name in ("total", "ready", "unschedulable"))
    return PodCounts(wanted, ready, max(total - ready - stuck, 0), stuck, max(wanted - total, 0))


def _start(status: Mapping[str, Any], wanted: int) -> str | None:
    """What pods under way do, and what to expect of them; None where none is."""
    counts, last = (fields.mapping(status.get(name)) for name in ("replicas", "coldStart"))
    ready, doing = _number(counts.get("ready"), 0), [(name, _number(counts.get(name), 0)) for name in _UNDER_WAY]
    found = [f"{count} {name}" for name, count in doing if count]
    if ready >= wanted or not found:
        return None
    decisions = fields.mappings(fields.mapping(status.get("scaling")).get("decisions"))
    waking = not ready and bool(decisions) and decisions[0].get("before") == 0
    told = ("waking from zero: " if waking else "") + ", ".join(found)
    if (seconds := fields.count(last.get("seconds"))) is None:
        return told if waking or any(count for name, count in doing if name != "pending") else None
    parts = [(name, fields.count(last.get(f"{name}Seconds"))) for name in _PARTS_OF_START]
    said = ", ".join(f"{value} s {name}" for name, value in parts if value)
    return f"{told}; the last start took {seconds} s" + (f" ({said})" if said else "")


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


def _notes(read: _Read, headline: str) -> Iterator[Note]:
    """Conditions that aren't as they should be, each sentence once."""
    said: set[str] = set()
    for kind, expected in _EXPECTED.items():
        found, message = read.conditions.get(kind, {}), read.message(kind)
        state, reason = (str(found.get(name) or "") for name in ("status", "reason"))
        if state not in {"True", "False"} or state == expected or reason in _IN_HEADLINE:
            continue
        if message in said or message in headline or _COUNT_ONLY.fullmatch(message):
            continue
        said.add(message)
        yield Note(kind, state, reason, message)
    # Progress is no news but where it has none.
    if (read.conditions.get("Reconciling") or {}).get("reason") == "RolloutBlocked":
        yield Note("Reconciling", "True", "RolloutBlocked", read.message("Reconciling"))


def _outdated(meta: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Note]:
    """What makes all of this old."""
    if meta.get("deletionTimestamp"):
        yield Note("Deleted", "True", "BeingDeleted", "the ModelDeployment is being deleted")
    asked, seen = meta.get("generation"), status.get("observedGeneration")
    if seen and asked != seen:
        text = f"the spec is of generation {asked}, and this is told of {seen}: the operator hasn't seen the last change yet"
        yield Note("Behind", "True", "SpecChanged", text)


def _decisions(told: Mapping[str, Any]) -> Iterator[ShownChange]:
    for one in fields.mappings(told.get("decisions")):
        before, after = (_number(one.get(name), 0) for name in ("before", "after"))
        yield ShownChange(fields.time(one.get("time")), before, after, _reason(one.get("why")) or "")


def _limited_by(told: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in fields.sequence(told.get("limitedBy"))]


def _reason(why: object) -> str | None:
    return fields.text(_HEAD.sub("", fields.text(why) or ""))


def _number(value: object, fallback: int) -> int:
    found = fields.count(value)
    return fallback if found is None else found
