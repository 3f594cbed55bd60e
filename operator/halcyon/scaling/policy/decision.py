"""What was decided for one model, for everybody who tells of it: status, events, metrics, `explain`, the dashboard.

One record whichever policy decided. Times are seconds since the epoch. Not here: how it is decided (`planner`, `direct`), how
it is written down (`control.scaling_status`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal

from halcyon.scaling.frozen import immutable
from halcyon.scaling.hpa.recommendation import Reasons, Term
from halcyon.scaling.planner.outputs import Plan, PlanPart

PolicyName = Literal["Planner", "Rules"]
CeilingName = Literal["quota", "budget"]
"""quota: a ResourceQuota of the namespace. budget: the site's GPU budget."""
KEPT = 10
"""Changes of the count that are remembered."""
_MOVED = 0.2
"""A value is news when it has moved by this share,"""
_SLIGHT = {"requestRate": 0.2, "queueDepth": 2.0, "gpuUtilization": 5.0}
"""and by more than so much."""
SPACING_S = 0.9
"""Least time between two decisions for one model: agents speak once a second, and out of turn where a load surges."""
REST_S = 4.5
"""The longest time between two, so that none is older than 5 s; agents speak about as often."""
UNLIMITED = "; limited by nothing"
"""How the planner's sentence ends where nothing limits it."""
RULES_SAY_UNTIL = "what one replica can do is not known yet, so queue depth and GPU utilisation decide"


@immutable(frozen=True, slots=True)
class Signal:
    """One signal, as it was when it was decided."""

    name: str
    """requestRate (requests per second), queueDepth (requests that wait) or gpuUtilization (percent, summed over pods)."""
    value: float | None = None
    """Of the whole model; None while it is missing."""
    target: float | None = None
    """Of one replica; None where there is no objective for it."""
    proposal: int | None = None
    """The count that it asks for; None where it asks for none."""
    at: float | None = None
    """When the value was seen."""
    source: str = "agents"
    missing: str = ""
    """Why there is no value."""


@immutable(frozen=True, slots=True)
class Decision:
    """One decision."""

    at: float
    policy: PolicyName
    current: int
    desired: int | None
    """None where somebody else decides: an HPA, by the policy Rules."""
    said: object = ""
    """The text of `why`, or what becomes it (`words`)."""
    limited_by: tuple[str, ...] = ()
    """What changed or kept the count after the signals had spoken; see `planner.result.LimitName` and `decision.LimitKind`."""
    parts: tuple[PlanPart, ...] = ()
    signals: tuple[Signal, ...] = ()
    unknown: str = ""
    """Why the count holds, where signals are missing or can't be believed; empty where they can."""
    heard: bool = True
    """Whether any agent has ever spoken for the model."""
    look_again_at: float = math.inf
    """When its policy would decide anew."""

    @property
    def why(self) -> str:
        """One sentence with numbers. Where an HPA decides, what the signals ask of it, without a count."""
        return str(self.said)

    @property
    def next_look_s(self) -> float:
        """Until the next decision where nothing is heard before: soon while something is under way; else what changes is heard."""
        soon = self.look_again_at - self.at
        return max(soon, SPACING_S) if soon < SPACING_S * 2 else REST_S


@immutable(frozen=True, slots=True)
class ReplicaLimit:
    """What the model's surroundings allow, whatever its signals ask for."""

    name: CeilingName
    replicas: int
    why: str


@immutable(frozen=True, slots=True)
class Change:
    """A change of the count that is asked for."""

    at: float
    before: int
    after: int
    why: str


def of_plan(plan: Plan, *, at: float, signals: tuple[Signal, ...]) -> Decision:
    """The planner's decision."""
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
        # It is the first where there is one (`planner`).
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
    """A decision by the HPA's own rules: of the policy Rules, or of Planner until it has learnt what a replica can do."""
    asked: dict[str, int | None] = {term.name: term.proposal for term in reasons.terms}
    # A signal that is missing holds the count only where the others would lower it, or there are none.
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
    """What the signals ask of an HPA, which decides."""
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
    """The decision within the lowest of the ceilings; the same where none is below it, or somebody else decides."""
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
    """In words: `1 replica`, `2 replicas`."""
    return f"{count} replica{'' if count == 1 else 's'}"


def is_news(shown: Decision | None, now: Decision) -> bool:
    """Whether a reader who has seen `shown` learns something: counts, limits, what is missing, or a value that has moved."""
    # Not the parts: what each asks for moves by one with every breath of the load.
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
    """Whether a value says something new to who has seen `before`."""
    if before is None or now is None:
        return before is not now
    moved = abs(now - before)
    return moved > slight and moved > _MOVED * max(abs(before), abs(now))


def changes_from(decisions: object) -> list[Change]:
    """The changes as the status has them, the newest first; what can't be read is left out."""
    found = []
    for entry in decisions if isinstance(decisions, list) else ():
        try:
            at = datetime.fromisoformat(entry["time"]).timestamp()
            found.append(Change(at, int(entry["before"]), int(entry["after"]), str(entry["why"])))
        except (KeyError, TypeError, ValueError):
            continue
    return found
