"""The scaling decision for one model, in one form for both policies.

Status, events, metrics, `halcyon explain` and the dashboard use it. Times are seconds since the epoch. Out of scope: how
a decision is made (`planner`, `hpa`), and how it is written to the status (`control.status.scaling`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from halcyon.api.timestamps import epoch_seconds
from halcyon.scaling.frozen import immutable
from halcyon.scaling.hpa.recommendation import Reasons, SignalProposal
from halcyon.scaling.planner.capacity_source import CapacitySource, source
from halcyon.scaling.planner.outputs import Plan, PlannerMemory, PlanPart
from halcyon.scaling.planner.plan import replica_of
from halcyon.scaling.planner.reading import Objectives

PolicyName = Literal["Planner", "Rules"]
ReplicaLimitName = Literal["quota", "budget", "site"]
"""Name of a limit that is independent of the model's signals. `quota`: a ResourceQuota of the namespace. `budget`: the
site's GPU budget. `site`: scaling down is stopped for the whole site."""
MAX_CHANGES = 10
"""Maximum number of changes to the desired replicas that the status keeps."""
_MIN_RELATIVE_CHANGE = 0.2
"""Minimum relative change of a signal's value for it to be published again."""
_MIN_CHANGES = {"requestRate": 0.2, "queueDepth": 2.0, "concurrency": 2.0, "metric": 0.0, "gpuUtilization": 5.0}
"""Minimum absolute change of a signal's value for it to be published again, by signal and in the signal's unit. The
relative minimum must be exceeded as well."""
_MIN_RATE = 0.01
"""Minimum change of a replica's capacity, in requests per second, for it to be published again."""
_NUMBER = re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?![\w-])")
"""Pattern of a number in a reason. Digits in a pod's name don't count as a number."""
MIN_DECISION_INTERVAL_S = 0.9
"""Minimum seconds between two decisions for one model. Agents report once a second, and immediately if the load
surges."""
MAX_DECISION_INTERVAL_S = 4.5
"""Maximum seconds between two decisions for one model, about the longest interval between an agent's reports."""
UNLIMITED = "; no limit applies"
"""Text that ends the planner's sentence if no limit changed the decision."""
SILENT_REASON = "a balancer does not report, so the load of the other balancers can only raise the replicas"
RULES_REASON = "the capacity of a replica is not known yet, so queue depth and GPU utilisation decide"


@immutable(frozen=True, slots=True)
class Signal:
    """One signal of a model at the time of a decision."""

    name: str
    """Name of the signal: requestRate (requests per second), queueDepth (queued requests), concurrency (requests in
    progress or waiting), metric (result of the site's query) or gpuUtilization (percent, summed over pods)."""
    value: float | None = None
    """Value of the signal for the whole model; None if it is missing."""
    target: float | None = None
    """Target value per replica; None if the signal has no target."""
    proposal: int | None = None
    """Number of replicas that the signal proposes; None if it proposes none."""
    at: float | None = None
    """Time at which the signal's value was measured."""
    source: str = "agents"
    missing: str = ""
    """Reason why the signal's value is missing; empty if the value is known, or if no pod is ready and there is nothing
    to measure."""
    shown: float | None = None
    """Measured number shown to users: queued requests, or the mean GPU utilisation of the ready pods in percent; None
    if unknown. Unlike `value`, it includes neither rejected requests nor estimates for pods that don't report."""


@immutable(frozen=True, slots=True)
class Decision:
    """One scaling decision for one model."""

    at: float
    policy: PolicyName
    current: int
    desired: int | None
    """Desired replicas; None if another controller sets them (the HPA, with the Rules policy)."""
    text: object = ""
    """Reasons for the decision in one sentence, as a string or as an object that formats it when it is read
    (`lazy_text`)."""
    limited_by: tuple[str, ...] = ()
    """Names of the limits that changed the replicas proposed by the signals, or kept them unchanged:
    `planner.outputs.LimitName`, `hpa.recommendation.LimitKind` or `ReplicaLimitName`."""
    parts: tuple[PlanPart, ...] = ()
    signals: tuple[Signal, ...] = ()
    unknown: str = ""
    """Reason why the replicas stay unchanged because signals are missing or implausible; empty if they aren't."""
    has_reports: bool = True
    """Whether any agent has ever sent a report about the model."""
    next_decision_at: float = math.inf
    """Time at which the policy requires the next decision."""
    capacity: CapacitySource | None = None
    """Capacity of a replica on which the decision is based, and its source; None if the decision uses no capacity."""

    @property
    def why(self) -> str:
        """Return the reasons for the decision in one sentence with numbers.

        If an HPA sets the replicas, the sentence contains only the proposal of each signal.
        """
        return str(self.text)

    @property
    def next_decision_s(self) -> float:
        """Return the maximum seconds until the next decision. An agent's report can cause an earlier decision."""
        soon = self.next_decision_at - self.at
        return max(soon, MIN_DECISION_INTERVAL_S) if soon < MIN_DECISION_INTERVAL_S * 2 else MAX_DECISION_INTERVAL_S


@immutable(frozen=True, slots=True)
class ReplicaLimit:
    """Upper limit on a model's replicas from a ResourceQuota or the GPU budget.

    It doesn't depend on the model's signals.
    """

    name: ReplicaLimitName
    replicas: int
    why: str


@immutable(frozen=True, slots=True)
class Change:
    """Change of the desired replicas, as stored in the status."""

    at: float
    before: int
    after: int
    why: str


def of_plan(plan: Plan, *, at: float, signals: tuple[Signal, ...], capacity: CapacitySource | None = None) -> Decision:
    """Build the decision from the planner's plan."""
    proposals: dict[str, int] = {term.name: term.replicas for term in plan.parts}
    queue = [proposals[name] for name in ("backlog", "queueDepth") if name in proposals]
    by_signal = {
        "requestRate": proposals.get("rate"),
        "queueDepth": max(queue, default=None),
        "concurrency": proposals.get("concurrency"),
        "metric": proposals.get("metric"),
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
        # A limit "unknown" is always the first (`planner.plan`).
        plan.limits[0].why if limits and limits[0] == "unknown" else "",
        next_decision_at=plan.next_decision_at,
        capacity=capacity,
    )


def _with_proposal(signal: Signal, proposal: int | None) -> Signal:
    if proposal == signal.proposal:
        return signal
    return Signal(
        signal.name, signal.value, signal.target, proposal, signal.at, signal.source, signal.missing, signal.shown
    )


def capacity_of(memory: PlannerMemory, objectives: Objectives, rows: float) -> CapacitySource:
    """Return a replica's capacity that the planner uses now, and its source. `rows` is the mean rows per request."""
    line, has_traffic = memory.capacity.line, memory.arrivals.last_at is not None
    replica = None if line is None else replica_of(objectives, line, rows)
    return source(memory.evidence, replica, capacity=memory.capacity, objectives=objectives, has_traffic=has_traffic)


def rate_signal(plan: Plan, at: float | None, missing: str) -> Signal:
    """Return the requestRate signal of a plan for a reading taken at time `at`.

    `missing` is the reason why the reading has no count of requests; empty if it has one.
    """
    rate = plan.memory.arrivals.rate()
    if missing or rate is None:
        return Signal("requestRate", missing=missing or "it is unknown until the second reading")
    # The first part is the one for the request rate.
    return Signal("requestRate", rate, None, plan.parts[0].replicas if plan.parts else None, at)


def of_held(replicas: int, held: float, *, at: float, signals: tuple[Signal, ...], why: str) -> Decision:
    """Build the decision to start a model at zero replicas because some of its balancers hold requests.

    `why` is the reason why the load of the other balancers is unknown.
    """
    waiting = "1 request waits" if held == 1 else f"{held:.0f} requests wait"
    text = f"{counted(replicas)}: {waiting}, and no replica runs ({why})"
    return Decision(at, "Planner", 0, replicas, text, signals=signals)


def of_rules(
    count: int, reasons: Reasons, sentence: str, *, at: float, policy: PolicyName, signals: tuple[Signal, ...]
) -> Decision:
    """Build the decision from a recommendation of the HPA's rules.

    Both policies use these rules: Rules always, Planner until the capacity of a replica is known.
    """
    proposals: dict[str, int | None] = {term.name: term.proposal for term in reasons.proposals}
    # A missing signal keeps the replicas unchanged only if the other signals propose fewer, or if all signals are missing.
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
    """Build the decision for a model whose replicas an HPA sets.

    The decision contains the signals and their proposals, but no desired replicas.
    """
    proposals: dict[str, int | None] = {term.name: term.proposal for term in parts}
    # Like the rules, an HPA uses the other signals if they propose no fewer replicas than there are.
    holds = max([count for count in proposals.values() if count is not None], default=-1) < current
    return Decision(
        at=at,
        policy="Rules",
        current=current,
        desired=None,
        text="; ".join(term.describe() for term in parts),
        parts=_parts(parts),
        signals=tuple(_with_proposal(signal, proposals.get(signal.name)) for signal in signals),
        unknown="; ".join(f"{signal.name}: {signal.missing}" for signal in signals if signal.missing and holds),
        has_reports=has_reports,
    )


def _parts(proposals: tuple[SignalProposal, ...]) -> tuple[PlanPart, ...]:
    return tuple(
        PlanPart(proposal.name, proposal.proposal, proposal.describe())
        for proposal in proposals
        if proposal.proposal is not None
    )


def limited(decision: Decision, limits: Iterable[ReplicaLimit]) -> Decision:
    """Return the decision with its desired replicas reduced to the lowest limit.

    It is unchanged if no limit is below the desired replicas, or if another controller sets the replicas.
    """
    lowest = min(limits, key=lambda limit: limit.replicas, default=None)
    if lowest is None or decision.desired is None or decision.desired <= lowest.replicas:
        return decision
    return _set_by(decision, lowest)


def held(decision: Decision, floor: int, why: str) -> Decision:
    """Return the decision with at least `floor` desired replicas.

    It is unchanged if it already has that many, or if another controller sets the replicas.
    """
    is_lower = decision.desired is not None and decision.desired < floor
    return _set_by(decision, ReplicaLimit("site", floor, why)) if is_lower else decision


def _set_by(decision: Decision, limit: ReplicaLimit) -> Decision:
    """Return the decision with its replicas set to those of a limit, and with the reason for the limit."""
    desired = f"{counted(decision.desired or 0)} {'is' if decision.desired == 1 else 'are'} desired"
    text = f"{counted(limit.replicas)}, although {desired}: {limit.why}. {decision.why.removesuffix(UNLIMITED)}"
    return replace(decision, desired=limit.replicas, text=text, limited_by=(*decision.limited_by, limit.name))


def counted(count: int) -> str:
    """Return the number with its noun, for example `1 replica` or `2 replicas`."""
    return f"{count} replica{'' if count == 1 else 's'}"


def has_changed(shown: Decision | None, now: Decision) -> bool:
    """Return whether a decision differs enough from the published one to be published.

    True if its replicas, limits, reasons, policy, signals or capacity differ noticeably.
    """
    # Parts are not compared, because their replicas change by one with every fluctuation of the load.
    if (
        shown is None
        or shown.current != now.current
        or shown.desired != now.desired
        or shown.limited_by != now.limited_by
        or bool(shown.unknown) != bool(now.unknown)
        or (shown.next_decision_s < MAX_DECISION_INTERVAL_S) != (now.next_decision_s < MAX_DECISION_INTERVAL_S)
        or shown.policy != now.policy
        or len(shown.signals) != len(now.signals)
        or _has_other_capacity(shown.capacity, now.capacity)
        or _has_other_reason(shown.unknown, now.unknown)
        or _is_for_batch(shown) != _is_for_batch(now)
    ):
        return True
    for before, after in zip(shown.signals, now.signals, strict=True):
        if (
            before.name != after.name
            or before.target != after.target
            or before.source != after.source
            or _has_other_reason(before.missing, after.missing)
            or has_moved(before.value, after.value, slight=_MIN_CHANGES.get(after.name, 0.0))
            or has_moved(before.shown, after.shown, slight=_MIN_CHANGES.get(after.name, 0.0))
        ):
            return True
    return False


def _has_other_reason(shown: str, now: str) -> bool:
    """Return whether two reasons for missing data differ in more than their numbers, such as an age."""
    return shown != now and _NUMBER.sub("", shown) != _NUMBER.sub("", now)


def _is_for_batch(decision: Decision) -> bool:
    return any(part.name == "batch" for part in decision.parts)


def _has_other_capacity(shown: CapacitySource | None, now: CapacitySource | None) -> bool:
    """Return whether the capacity differs noticeably from the published one: in source, contradiction or value."""
    if shown is None or now is None:
        return shown is not now
    return (
        shown.name != now.name
        or shown.contradiction != now.contradiction
        or has_moved(shown.rps, now.rps, slight=_MIN_RATE)
    )


def has_moved(before: float | None, now: float | None, *, slight: float = 0.1) -> bool:
    """Return whether a value has changed noticeably.

    True if it changed by more than 20 % and by more than `slight`, or if it became known or unknown.
    """
    if before is None or now is None:
        return before is not now
    moved = abs(now - before)
    return moved > slight and moved > _MIN_RELATIVE_CHANGE * max(abs(before), abs(now))


def has_more_signals(before: Decision, now: Decision) -> bool:
    """Return whether signals that were missing are known now, and no other signal is missing."""
    return _missing(now) < _missing(before)


def _missing(decision: Decision) -> set[str]:
    return {signal.name for signal in decision.signals if signal.missing}


def changes_from(decisions: object) -> list[Change]:
    """Parse the changes in `status.scaling.decisions`, newest first. Invalid entries are left out."""
    changes = []
    for entry in decisions if isinstance(decisions, list) else ():
        try:
            if (at := epoch_seconds(entry["time"])) is not None:
                changes.append(Change(at, int(entry["before"]), int(entry["after"]), str(entry["why"])))
        except (KeyError, TypeError, ValueError):
            continue
    return changes
