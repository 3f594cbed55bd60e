"""minReplicas and maxReplicas as limits of a plan, and whether the spec or a schedule sets them. Pure.

The planner's result is always within these bounds. At the upper bound, the planner does not compute how many more
replicas are needed. At the lower bound, it often reports no limit. This module adds both for `status.scaling`. The
plan's number of replicas doesn't change.

- At the maximum, with more replicas needed: `max` is reported, with the number needed.
- At the minimum, with fewer replicas needed and no other limit: `min` is reported.
- If the number needed is unknown, and the replicas before were below the minimum or above the maximum: `min` or `max`
  is reported, with the limits of the plan.
- In all other cases, only the limits of the plan are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from halcyon.scaling.hpa.recommendation import RecommendationLimit
from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit, PlannerMemory
from halcyon.scaling.planner.plan import bounds
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.policy.decision import Decision, Signal, of_plan

_MAX_REPLICAS = 1000
"""Largest maxReplicas that a ModelDeployment may have."""


def bounded(plan: Plan, objectives: Objectives, planned: Callable[[Objectives], Plan]) -> Plan:
    """Return the plan with `min` or `max` added to its limits, if this bound determined the replicas.

    If the plan is at the upper bound, `planned` is called to make a second plan without an upper bound. If the second
    plan needs more replicas, its parts are included in the result. Its replicas and memory are discarded.
    """
    low, high = bounds(objectives)
    needed_now = _max_needed(plan)
    limits = [limit for limit in plan.limits if limit.name not in {"min", "max"}]
    if plan.count == high and needed_now is not None and needed_now >= high:
        beyond = planned(
            replace(objectives, high=_MAX_REPLICAS, windows=tuple(replace(w, high=None) for w in objectives.windows))
        )
        needed = _max_needed(beyond)
        if needed is not None and needed > high:
            limits.append(PlanLimit("max", high, f"{_bound_reason(objectives, 'max', high)}, and {needed} are needed"))
            return replace(plan, parts=beyond.parts, winner=beyond.winner, limits=tuple(limits))
    raised = plan.current < low and needed_now is None
    if plan.count == low and (raised or (not limits and needed_now is not None and needed_now < low)):
        limits.append(PlanLimit("min", low, _bound_reason(objectives, "min", low)))
    elif plan.count == high < plan.current and needed_now is None:
        limits.append(PlanLimit("max", high, _bound_reason(objectives, "max", high)))
    elif len(limits) < len(plan.limits):
        limits += [
            replace(limit, text=_bound_reason(objectives, limit.name, limit.replicas))
            for limit in plan.limits
            if limit not in limits
        ]
    else:
        return plan
    return replace(plan, limits=tuple(limits))


def kept(current: int, objectives: Objectives, why: str, *, at: float) -> Decision:
    """Return the decision for a model on which no agent reports: `current` replicas, within the limits.

    `why` is the reason why no signal is known. If the limits change the replicas, the change must be written and
    published, so the decision then has no reason in `unknown`.
    """
    low, high = bounds(objectives)
    count = min(max(current, low), high)
    limit = PlanLimit("unknown", count, f"{why}; the replicas stay as they are" if count == current else why)
    plan = Plan(count, current, (), None, (limit,), math.inf, PlannerMemory())
    signals = tuple(Signal(name, missing=why) for name in ("requestRate", "queueDepth"))
    decision = of_plan(bounded(plan, objectives, lambda _: plan), at=at, signals=signals)
    return replace(decision, unknown=why if count == current else "", has_reports=count != current)


def with_bound_reasons(text: str, limits: Iterable[RecommendationLimit], objectives: Objectives) -> str:
    """Return the reason for a decision by the HPA's rules, naming the schedules that set its minimum or maximum."""
    for limit in limits:
        if limit.kind in {"min", "max"}:
            text = text.replace(limit.describe(), _bound_reason(objectives, limit.kind, limit.count))
    return text


def _max_needed(plan: Plan) -> int | None:
    """Return the largest number of replicas that any part of the plan requires; None if it has no parts."""
    return max([part.replicas for part in plan.parts]) if plan.parts else None


def _bound_reason(objectives: Objectives, name: LimitName, count: int) -> str:
    """Return the reason for a minimum or maximum of `count` replicas, as a phrase.

    The reason is an active schedule, the spec or the idle timeout. If a maximum lowers the minimum, the phrase names
    both.
    """
    side = "low" if name == "min" else "high"
    for window in objectives.windows:
        if getattr(window, side) == count != getattr(objectives, side):
            return f"the schedule {window.name} sets {'at least' if name == 'min' else 'at most'} {count}"
    least = max([objectives.low, *(w.low for w in objectives.windows if w.low is not None)])
    if name == "min" and least < count:
        return "the last replica stays until idleTimeout"  # the HPA's rules never scale to 0
    if name == "min" and least > count:
        return f"{_bound_reason(objectives, 'min', least)}, but {_bound_reason(objectives, 'max', count)}"
    return f"{name}Replicas is {count}"
