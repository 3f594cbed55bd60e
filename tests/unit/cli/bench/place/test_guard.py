"""The guard of a measurement of a served model: the next rate, the bounds, and when it must not begin."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon_cli.bench.place.guard import ClientBounds, Step, bounds, crossed, crossed_within, next_rate, refusal
from tests.unit.cli.bench.place.served_models import served

FIRST = Step(rate_rps=20.0, due=80, failed=0, p95_s=0.05)
LIMITS = ClientBounds(0.1, 0.01, "twice what it was")


def test_bound_is_the_objective_or_twice_what_clients_had() -> None:
    assert bounds(FIRST, 0.3) == ClientBounds(0.3, 0.01, "spec.scaling.targets.latency")
    assert bounds(FIRST, None) == LIMITS
    assert bounds(FIRST, 0.04) == LIMITS  # missed already: the objective can't be the bound
    assert bounds(Step(1, 4, 4, None), 0.3) is None


def test_failures_that_were_there_before_are_no_crossing() -> None:
    limits = bounds(Step(20, 100, 4, 0.05), None)
    assert limits is not None
    assert limits.failed == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(40, 160, 0, 0.09), ""),
        (Step(40, 160, 2, 0.09), ""),
        (Step(40, 160, 0, 0.11), "at 40 requests/s, p95 was 110.0 ms; the bound is 100.0 ms (twice what it was)"),
        (Step(40, 160, 3, 0.05), "at 40 requests/s, 3 of 160 requests failed; the bound is 1.0 %"),
        (Step(40, 160, 160, None), "at 40 requests/s, 160 of 160 requests failed; the bound is 1.0 %"),
    ],
)
def test_step_beyond_a_bound_is_named(step: Step, message: str) -> None:
    assert crossed(step, LIMITS) == message


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ([], ""),
        ([(40, 0, 0.05)], ""),
        ([(40, 0, 0.05), (40, 2, 0.05)], ""),
        ([(40, 0, 0.05), (30, 3, 0.05)], "3 of 73 requests failed within 2 s"),
        ([(40, 0, 0.05), (40, 0, 0.2)], "the median was 200.0 ms"),
        ([(40, 0, 0.05), (0, 0, None), (0, 0, None)], "no request was answered within 2 s"),
    ],
)
def test_running_step_ends_at_once_if_clients_suffer(
    seconds: list[tuple[int, int, float | None]], message: str
) -> None:
    crossing = crossed_within(seconds, 40.0, LIMITS)
    assert message in crossing
    assert bool(message) == bool(crossing)


def test_rate_doubles_and_slows_down_near_the_bound() -> None:
    assert next_rate(FIRST, [], LIMITS, 500) == 10
    assert next_rate(FIRST, [Step(10, 40, 0, 0.04)], LIMITS, 500) == 20
    assert next_rate(FIRST, [Step(20, 40, 0, 0.06)], LIMITS, 500) == 25
    assert next_rate(FIRST, [Step(20, 40, 0, 0.06)], LIMITS, 22) == 22
    assert next_rate(FIRST, [Step(22, 40, 0, 0.06)], LIMITS, 22) is None


TO_ZERO = {"minReplicas": 0, "maxReplicas": 8}


def conditions(**states: str) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": state, "message": f"why {name}"} for name, state in states.items()]}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (served(status=conditions(Ready="True")), ""),
        (served(status=conditions(Ready="True", Reconciling="True")), "in a rollout: why Reconciling"),
        (served(status=conditions(Ready="False")), "isn't ready: why Ready"),
        (served(spec={"replicas": 8}, status=conditions(Ready="True")), "has 8 replicas, its maximum"),
        (served(spec={"replicas": 0, "scaling": TO_ZERO}, status=conditions(Ready="True")), "at zero replicas"),
        (
            served(spec={"replicas": 0}, status=conditions(Ready="True")),
            "",
        ),  # minReplicas is 1, and so are the replicas
        (served(spec={"scaling": {"maxReplicas": 8, "mode": "Paused"}}, status=conditions(Ready="True")), "is paused"),
        (served(spec={"replicas": 1, "scaling": {"maxReplicas": 1}}, status=conditions(Ready="True")), ""),
    ],
)
def test_models_that_must_not_be_loaded_are_refused(model: dict[str, Any], message: str) -> None:
    reason = refusal(model)
    assert message in reason
    assert bool(message) == bool(reason)


def test_a_high_rate_has_no_exponent() -> None:
    assert crossed(Step(2400.0, 9600, 0, 9.0), LIMITS).startswith("at 2400 requests/s, p95 was 9000.0 ms")
