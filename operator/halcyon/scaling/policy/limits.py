"""Bounds of a plan: adds the bounds in force to its limits, with who sets them. Pure; the replicas don't change.

The planner computes nothing beyond its bounds. At the upper bound it doesn't know whether more replicas would be
needed, and at the lower bound it reports no limit if nothing asks for fewer. Readers want to know both, and whether
the spec or a schedule sets the bound.

replicas     needed                      before      reported limit
at maximum   more                        -           max, and how many are needed
at minimum   fewer, and nothing holds    -           min
at minimum   not known yet               fewer       min, beside the reason
else         -                           -           as in the plan
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit
from halcyon.scaling.planner.plan import bounds
from halcyon.scaling.planner.reading import Objectives

_MAX_REPLICAS = 1000
"""Maximum replicas that a spec may set."""


def bounded(plan: Plan, objectives: Objectives, planned: Callable[[Objectives], Plan]) -> Plan:
    """Return the plan with its bounds among its limits if they apply, and its parts as they are without an upper bound.

    `planned` makes the same plan for other objectives. It is called only if the plan is at the upper bound; its memory and
    replicas are discarded.
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
            return _with_limits(plan, beyond, limits)
    raised = plan.current < low and needed_now is None
    if plan.count == low and (raised or (not limits and needed_now is not None and needed_now < low)):
        limits.append(PlanLimit("min", low, _bound_reason(objectives, "min", low)))
    elif len(limits) < len(plan.limits):
        limits += [
            replace(one, text=_bound_reason(objectives, one.name, one.replicas))
            for one in plan.limits
            if one not in limits
        ]
    else:
        return plan
    return _with_limits(plan, plan, limits)


def _with_limits(plan: Plan, source: Plan, limits: list[PlanLimit]) -> Plan:
    """Return the plan with the parts of `source` and with these limits."""
    return Plan(
        plan.count, plan.current, source.parts, source.winner, tuple(limits), plan.next_decision_at, plan.memory
    )


def _max_needed(plan: Plan) -> int | None:
    """Return the most replicas that any part asks for; None if there are no parts."""
    return max([part.replicas for part in plan.parts]) if plan.parts else None


def _bound_reason(objectives: Objectives, name: LimitName, count: int) -> str:
    """Return who sets this bound: an open schedule, or the spec."""
    side = "low" if name == "min" else "high"
    for window in objectives.windows:
        if getattr(window, side) == count != getattr(objectives, side):
            return f"the schedule {window.name} sets {'at least' if name == 'min' else 'at most'} {count}"
    return f"{name}Replicas is {count}"
