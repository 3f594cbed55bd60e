"""The decision for one model, for all its readers: status, events, metrics, `explain`, the dashboard.

Both policies use the same record. Times are seconds since the epoch. Out of scope: how it is made (`planner`, `hpa`),
and how it is written to the status (`control.status.scaling`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from halcyon.api.timestamps import epoch_seconds
from halcyon.scaling.frozen import immutable
from halcyon.scaling.hpa.recommendation import Reasons, Term
from halcyon.scaling.planner.outputs import Plan, PlanPart

PolicyName = Literal["Planner", "Rules"]
CeilingName = Literal["quota", "budget"]
"""quota: a ResourceQuota of the namespace. budget: the site's GPU budget."""
KEPT = 10
"""Number of replica changes that are kept."""
_MOVED = 0.2
"""Relative change from which a value counts as changed."""
_SLIGHT = {"requestRate": 0.2, "queueDepth": 2.0, "gpuUtilization": 5.0}
"""Absolute change by signal that it must also exceed."""
SPACING_S = 0.9
"""Minimum time between two decisions for one model: agents report once a second, and at once if the load surges."""
REST_S = 4.5
"""Maximum time between two decisions, so that none is older than 5 s; agents report about as often."""
UNLIMITED = "; limited by nothing"
"""End of the planner's sentence if nothing limits the decision."""
RULES_SAY_UNTIL = "what one replica can do is not known yet, so queue depth and GPU utilisation decide"


@immutable(frozen=True, slots=True)
class Signal:
    """One signal at the time of the decision."""

    name: str
    """requestRate (requests per second), queueDepth (queued requests) or gpuUtilization (percent, summed over pods)."""
    value: float | None = None
    """Value for the whole model; None while it is missing."""
    target: float | None = None
    """Target per replica; None if there is no objective for it."""
    proposal: int | None = None
    """Replicas that the signal proposes; None if it proposes none."""
    at: float | None = None
    """Time of the value."""
    source: str = "agents"
    missing: str = ""
    """Reason for the missing value."""


@immutable(frozen=True, slots=True)
class Decision:
    """One decision for one model."""

    at: float
    policy: PolicyName
    current: int
    desired: int | None
    """Desired replicas; None if another controller decides (the HPA, with the policy Rules)."""
    said: object = ""
    """Text of `why`, or an object that formats it (`lazy_text`)."""
    limited_by: tuple[str, ...] = ()
    """Names of the limits that changed or kept the result of the signals: `planner.outputs.LimitName` or
    `hpa.recommendation.LimitKind`."""
    parts: tuple[PlanPart, ...] = ()
    signals: tuple[Signal, ...] = ()
    unknown: str = ""
    """Why the replicas stay as they are if signals are missing or implausible; otherwise empty."""
    heard: bool = True
    """Whether any agent has ever reported for the model."""
    look_again_at: float = math.inf
    """Time at which the policy wants to decide again."""

    @property
    def why(self) -> str:
        """Return one sentence with numbers. If an HPA decides, it says what the signals propose, without replicas."""
        return str(self.said)

    @property
    def next_look_s(self) -> float:
        """Return the seconds until the next decision unless a report arrives first: soon while something is under way."""
        soon = self.look_again_at - self.at
        return max(soon, SPACING_S) if soon < SPACING_S * 2 else REST_S


@immutable(frozen=True, slots=True)
class ReplicaLimit:
    """Limit set by the model's surroundings, regardless of its signals."""

    name: CeilingName
    replicas: int
    why: str


@immutable(frozen=True, slots=True)
class Change:
    """A change of the desired replicas."""

    at: float
    before: int
    after: int
    why: str


def of_plan(plan: Plan, *, at: float, signals: tuple[Signal, ...]) -> Decision:
    """Build the decision from the planner's plan."""
    by: dict[str, int] = {term.name: term.replicas for term in plan.terms}
    asked = {
        "requestRate": by.get("rate"),
        "queueDepth": by.get("backlog", by.get("queueDepth")),
        "gpuUtilization": by.get("gpuUtilization"),
    }
    limits = tuple([limit.name for limit in plan.limits])
    return Decision(
        at,
        "Planner",
        plan.current,
        plan.count,
        plan.sentence(),
        limits,
        plan.terms,
        tuple([_asking(signal, asked[signal.name]) for signal in signals]),
        # If present, it is the first (`planner.plan`).
        plan.limits[0].why if limits and limits[0] == "unknown" else "",
        look_again_at=plan.look_again_at,
    )


def _asking(signal: Signal, proposal: int | None) -> Signal:
    if proposal == signal.proposal:
        return signal
    return Signal(signal.name, signal.value, signal.target, proposal, signal.at, signal.source, signal.missing)


def of_rules(
    count: int, reasons: Reasons, say: str, *, at: float, policy: PolicyName, signals: tuple[Signal, ...]
) -> Decision:
    """Build a decision by the HPA's rules: for the policy Rules, or for Planner until a replica's capacity is known."""
    asked: dict[str, int | None] = {term.name: term.proposal for term in reasons.terms}
    # A missing signal keeps the replicas only if the others would lower them, or there are no others.
    holds = any(limit.kind == "unknown" for limit in reasons.limits)
    missing = "; ".join(term.say() for term in reasons.terms if term.proposal is None) if holds else ""
    return Decision(
        at=at,
        policy=policy,
        current=reasons.current,
        desired=count,
        said=say if policy == "Rules" else f"{say}; {RULES_SAY_UNTIL}",
        limited_by=tuple(limit.kind for limit in reasons.limits),
        parts=_parts(reasons.terms),
        signals=tuple(_asking(signal, asked.get(signal.name)) for signal in signals),
        unknown=missing,
    )


def of_hpa(current: int, terms: tuple[Term, ...], *, at: float, signals: tuple[Signal, ...], heard: bool) -> Decision:
    """Build the record of what the signals propose to an HPA, which then decides."""
    asked: dict[str, int | None] = {term.name: term.proposal for term in terms}
    return Decision(
        at=at,
        policy="Rules",
        current=current,
        desired=None,
        said="; ".join(term.say() for term in terms),
        parts=_parts(terms),
        signals=tuple(_asking(signal, asked.get(signal.name)) for signal in signals),
        unknown="; ".join(f"{signal.name}: {signal.missing}" for signal in signals if signal.missing),
        heard=heard,
    )


def _parts(terms: tuple[Term, ...]) -> tuple[PlanPart, ...]:
    return tuple(PlanPart(term.name, term.proposal, term.say()) for term in terms if term.proposal is not None)


def limited(verdict: Decision, ceilings: Iterable[ReplicaLimit]) -> Decision:
    """Apply the lowest limit; return the decision unchanged if none is below it, or another controller decides."""
    lowest = min(ceilings, key=lambda ceiling: ceiling.replicas, default=None)
    if lowest is None or verdict.desired is None or verdict.desired <= lowest.replicas:
        return verdict
    return replace(
        verdict,
        desired=lowest.replicas,
        said=f"{counted(lowest.replicas)}, where {counted(verdict.desired)} are wanted: {lowest.why}. "
        + verdict.why.removesuffix(UNLIMITED),
        limited_by=(*verdict.limited_by, lowest.name),
    )


def counted(count: int) -> str:
    """Return the number in words: `1 replica`, `2 replicas`."""
    return f"{count} replica{'' if count == 1 else 's'}"


def is_news(shown: Decision | None, now: Decision) -> bool:
    """Return whether a decision differs from the one shown: replicas, limits, missing signals, or a value that moved."""
    # Parts are left out: what each asks for moves by one with every fluctuation of the load.
    if (
        shown is None
        or shown.current != now.current
        or shown.desired != now.desired
        or shown.limited_by != now.limited_by
        or bool(shown.unknown) != bool(now.unknown)
        or (shown.next_look_s < REST_S) != (now.next_look_s < REST_S)
        or shown.policy != now.policy
        or len(shown.signals) != len(now.signals)
    ):
        return True
    for before, after in zip(shown.signals, now.signals, strict=True):
        if (
            before.name != after.name
            or before.target != after.target
            or before.source != after.source
            or has_moved(before.value, after.value, slight=_SLIGHT.get(after.name, 0.0))
        ):
            return True
    return False


def has_moved(before: float | None, now: float | None, *, slight: float = 0.1) -> bool:
    """Return whether a value differs noticeably from `before`."""
    if before is None or now is None:
        return before is not now
    moved = abs(now - before)
    return moved > slight and moved > _MOVED * max(abs(before), abs(now))


def changes_from(decisions: object) -> list[Change]:
    """Return the changes recorded in the status, newest first; unreadable ones are left out."""
    found = []
    for entry in decisions if isinstance(decisions, list) else ():
        try:
            if (at := epoch_seconds(entry["time"])) is not None:
                found.append(Change(at, int(entry["before"]), int(entry["after"]), str(entry["why"])))
        except (KeyError, TypeError, ValueError):
            continue
    return found
