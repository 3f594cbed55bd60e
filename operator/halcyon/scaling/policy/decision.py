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
from halcyon.scaling.hpa.recommendation import Reasons, SignalProposal
from halcyon.scaling.planner.outputs import Plan, PlanPart

PolicyName = Literal["Planner", "Rules"]
ReplicaLimitName = Literal["quota", "budget"]
"""quota: a ResourceQuota of the namespace. budget: the site's GPU budget."""
MAX_CHANGES = 10
"""Number of replica changes that are kept."""
_MIN_RELATIVE_CHANGE = 0.2
"""Relative change from which a value counts as changed."""
_MIN_CHANGES = {"requestRate": 0.2, "queueDepth": 2.0, "gpuUtilization": 5.0}
"""Absolute change by signal that it must also exceed."""
MIN_DECISION_INTERVAL_S = 0.9
"""Minimum time between two decisions for one model: agents report once a second, and at once if the load surges."""
MAX_DECISION_INTERVAL_S = 4.5
"""Maximum time between two decisions, so that none is older than 5 s; agents report about as often."""
UNLIMITED = "; no limit applies"
"""End of the planner's sentence if nothing limits the decision."""
RULES_REASON = "what one replica can do is not known yet, so queue depth and GPU utilisation decide"


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
    text: object = ""
    """Text of `why`, or an object that formats it (`lazy_text`)."""
    limited_by: tuple[str, ...] = ()
    """Names of the limits that changed or kept the result of the signals: `planner.outputs.LimitName` or
    `hpa.recommendation.LimitKind`."""
    parts: tuple[PlanPart, ...] = ()
    signals: tuple[Signal, ...] = ()
    unknown: str = ""
    """Why the replicas stay as they are if signals are missing or implausible; otherwise empty."""
    has_reports: bool = True
    """Whether any agent has ever reported for the model."""
    next_decision_at: float = math.inf
    """Time at which the policy wants to decide again."""

    @property
    def why(self) -> str:
        """Return one sentence with numbers. If an HPA decides, it says what the signals propose, without replicas."""
        return str(self.text)

    @property
    def next_decision_s(self) -> float:
        """Return the seconds until the next decision unless a report arrives first: soon while something is under way."""
        soon = self.next_decision_at - self.at
        return max(soon, MIN_DECISION_INTERVAL_S) if soon < MIN_DECISION_INTERVAL_S * 2 else MAX_DECISION_INTERVAL_S


@immutable(frozen=True, slots=True)
class ReplicaLimit:
    """Limit set by the model's surroundings, regardless of its signals."""

    name: ReplicaLimitName
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
    proposals: dict[str, int] = {term.name: term.replicas for term in plan.parts}
    by_signal = {
        "requestRate": proposals.get("rate"),
        "queueDepth": proposals.get("backlog", proposals.get("queueDepth")),
        "gpuUtilization": proposals.get("gpuUtilization"),
    }
    limits = tuple([limit.name for limit in plan.limits])
    return Decision(
        at,
        "Planner",
        plan.current,
        plan.count,
        plan.sentence(),
        limits,
        plan.parts,
        tuple([_with_proposal(signal, by_signal[signal.name]) for signal in signals]),
        # If present, it is the first (`planner.plan`).
        plan.limits[0].why if limits and limits[0] == "unknown" else "",
        next_decision_at=plan.next_decision_at,
    )


def _with_proposal(signal: Signal, proposal: int | None) -> Signal:
    if proposal == signal.proposal:
        return signal
    return Signal(signal.name, signal.value, signal.target, proposal, signal.at, signal.source, signal.missing)


def of_rules(
    count: int, reasons: Reasons, sentence: str, *, at: float, policy: PolicyName, signals: tuple[Signal, ...]
) -> Decision:
    """Build a decision by the HPA's rules: for the policy Rules, or for Planner until a replica's capacity is known."""
    proposals: dict[str, int | None] = {term.name: term.proposal for term in reasons.proposals}
    # A missing signal keeps the replicas only if the others would lower them, or there are no others.
    holds = any(limit.kind == "unknown" for limit in reasons.limits)
    missing = "; ".join(term.describe() for term in reasons.proposals if term.proposal is None) if holds else ""
    return Decision(
        at=at,
        policy=policy,
        current=reasons.current,
        desired=count,
        text=sentence if policy == "Rules" else f"{sentence}; {RULES_REASON}",
        limited_by=tuple(limit.kind for limit in reasons.limits),
        parts=_parts(reasons.proposals),
        signals=tuple(_with_proposal(signal, proposals.get(signal.name)) for signal in signals),
        unknown=missing,
    )


def of_hpa(
    current: int, parts: tuple[SignalProposal, ...], *, at: float, signals: tuple[Signal, ...], has_reports: bool
) -> Decision:
    """Build the record of what the signals propose to an HPA, which then decides."""
    proposals: dict[str, int | None] = {term.name: term.proposal for term in parts}
    return Decision(
        at=at,
        policy="Rules",
        current=current,
        desired=None,
        text="; ".join(term.describe() for term in parts),
        parts=_parts(parts),
        signals=tuple(_with_proposal(signal, proposals.get(signal.name)) for signal in signals),
        unknown="; ".join(f"{signal.name}: {signal.missing}" for signal in signals if signal.missing),
        has_reports=has_reports,
    )


def _parts(proposals: tuple[SignalProposal, ...]) -> tuple[PlanPart, ...]:
    return tuple(
        PlanPart(proposal.name, proposal.proposal, proposal.describe())
        for proposal in proposals
        if proposal.proposal is not None
    )


def limited(decision: Decision, limits: Iterable[ReplicaLimit]) -> Decision:
    """Apply the lowest limit; return the decision unchanged if none is below it, or another controller decides."""
    lowest = min(limits, key=lambda limit: limit.replicas, default=None)
    if lowest is None or decision.desired is None or decision.desired <= lowest.replicas:
        return decision
    return replace(
        decision,
        desired=lowest.replicas,
        text=f"{counted(lowest.replicas)}, although {counted(decision.desired)} "
        f"{'is' if decision.desired == 1 else 'are'} desired: {lowest.why}. " + decision.why.removesuffix(UNLIMITED),
        limited_by=(*decision.limited_by, lowest.name),
    )


def counted(count: int) -> str:
    """Return the number in words: `1 replica`, `2 replicas`."""
    return f"{count} replica{'' if count == 1 else 's'}"


def has_changed(shown: Decision | None, now: Decision) -> bool:
    """Return whether a decision differs from the one shown: replicas, limits, missing signals, or a value that moved."""
    # Parts are left out: what each asks for moves by one with every fluctuation of the load.
    if (
        shown is None
        or shown.current != now.current
        or shown.desired != now.desired
        or shown.limited_by != now.limited_by
        or bool(shown.unknown) != bool(now.unknown)
        or (shown.next_decision_s < MAX_DECISION_INTERVAL_S) != (now.next_decision_s < MAX_DECISION_INTERVAL_S)
        or shown.policy != now.policy
        or len(shown.signals) != len(now.signals)
    ):
        return True
    for before, after in zip(shown.signals, now.signals, strict=True):
        if (
            before.name != after.name
            or before.target != after.target
            or before.source != after.source
            or has_moved(before.value, after.value, slight=_MIN_CHANGES.get(after.name, 0.0))
        ):
            return True
    return False


def has_moved(before: float | None, now: float | None, *, slight: float = 0.1) -> bool:
    """Return whether a value differs noticeably from `before`."""
    if before is None or now is None:
        return before is not now
    moved = abs(now - before)
    return moved > slight and moved > _MIN_RELATIVE_CHANGE * max(abs(before), abs(now))


def changes_from(decisions: object) -> list[Change]:
    """Return the changes recorded in the status, newest first; unreadable ones are left out."""
    changes = []
    for entry in decisions if isinstance(decisions, list) else ():
        try:
            if (at := epoch_seconds(entry["time"])) is not None:
                changes.append(Change(at, int(entry["before"]), int(entry["after"]), str(entry["why"])))
        except (KeyError, TypeError, ValueError):
            continue
    return changes
