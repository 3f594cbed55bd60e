"""Who keeps a count from being what is needed: said by name, and nothing else changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon.scaling.planner.outputs import LimitName, Plan, PlanLimit, PlannerMemory, PlanPart
from halcyon.scaling.planner.reading import Objectives, OpenWindow
from halcyon.scaling.policy.limits import bounded

AIMS = Objectives(low=2, high=5)


def plan(count: int, needs: int | None, *limits: LimitName, current: int | None = None) -> Plan:
    """A plan of this count, whose rate needs so many; None where nothing is known."""
    terms = () if needs is None else (PlanPart("rate", needs, f"needs {needs}"),)
    plan_limits = tuple(PlanLimit(name, count, f"by {name}") for name in limits)
    return Plan(
        count,
        count if current is None else current,
        terms,
        "rate" if terms else None,
        plan_limits,
        0.0,
        PlannerMemory(),
    )


def limits(base: Plan, aims: Objectives = AIMS, *, beyond: int | None = None) -> dict[str, str]:
    """What is said, where without an upper bound so many are needed."""
    result = bounded(base, aims, lambda _: plan(base.count, beyond))
    assert (result.count, result.current, result.memory) == (base.count, base.current, base.memory)
    return {limit.name: limit.why for limit in result.limits}


@pytest.mark.parametrize(
    ("base", "beyond", "expected"),
    [
        (plan(5, 5), 9, {"max": "maxReplicas is 5, and 9 are needed"}),
        (plan(5, 5, "max"), 9, {"max": "maxReplicas is 5, and 9 are needed"}),
        (plan(5, 5), 5, {}),
        (plan(5, 5), None, {}),
        (plan(5, 3, "hold"), 9, {"hold": "by hold"}),
        (plan(3, 3), None, {}),
        (plan(2, 1), None, {"min": "minReplicas is 2"}),
        (plan(2, 2), None, {}),
        (plan(2, 1, "hold"), None, {"hold": "by hold"}),
        (plan(2, 1, "min"), None, {"min": "minReplicas is 2"}),
        (plan(2, 0, "idle", "min"), None, {"idle": "by idle", "min": "minReplicas is 2"}),
        (plan(2, None, "learning", current=1), None, {"learning": "by learning", "min": "minReplicas is 2"}),
        (plan(2, None, "learning", current=2), None, {"learning": "by learning"}),
        (plan(4, None, "unknown"), None, {"unknown": "by unknown"}),
        (plan(5, None, "unknown", current=7), None, {"unknown": "by unknown", "max": "maxReplicas is 5"}),
    ],
)
def test_a_bound_is_named_if_it_counts(base: Plan, beyond: int | None, expected: dict[str, str]) -> None:
    assert limits(base, beyond=beyond) == expected


def test_a_schedule_that_sets_a_bound_is_named() -> None:
    office = OpenWindow("office", low=4, high=None)
    night = OpenWindow("night", low=None, high=3)

    assert limits(plan(4, 1), replace(AIMS, windows=(office,))) == {"min": "the schedule office sets at least 4"}
    reasons = limits(plan(3, 3), replace(AIMS, windows=(night,)), beyond=7)
    assert reasons == {"max": "the schedule night sets at most 3, and 7 are needed"}
    assert limits(plan(2, 1), replace(AIMS, windows=(night,))) == {"min": "minReplicas is 2"}


def test_a_maximum_below_the_minimum_is_named_with_it() -> None:
    office = OpenWindow("office", low=4, high=None)
    night = OpenWindow("night", low=None, high=1)
    most = "but the schedule night sets at most 1"

    assert limits(plan(1, 0), replace(AIMS, windows=(night,))) == {"min": f"minReplicas is 2, {most}"}
    reasons = limits(plan(1, 0), replace(AIMS, windows=(office, night)))
    assert reasons == {"min": f"the schedule office sets at least 4, {most}"}
    reasons = limits(plan(3, 1), replace(AIMS, high=3, windows=(office,)))
    assert reasons == {"min": "the schedule office sets at least 4, but maxReplicas is 3"}


def test_the_parts_at_the_maximum_are_those_without_a_bound() -> None:
    objectives: list[Objectives] = []

    def planned(aims: Objectives) -> Plan:
        objectives.append(aims)
        return plan(9, 9)

    night = OpenWindow("night", low=1, high=5)
    result = bounded(plan(5, 5), replace(AIMS, high=8, windows=(night,)), planned)
    assert [term.replicas for term in result.parts] == [9]
    assert [(aims.high, aims.windows) for aims in objectives] == [(1000, (OpenWindow("night", low=1, high=None),))]
    bounded(plan(4, 4), AIMS, planned)
    assert len(objectives) == 1
