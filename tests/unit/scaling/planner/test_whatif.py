"""What other targets would have made of a past."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine, replicas_within
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.planner.whatif import Known, outcome

REPLICA = Replica(ServiceLine(0.02, 0.01), 8)
"""80 requests per second at most, in batches of 100 ms."""
KNOWN = Known(Objectives(low=1, high=20, max_batch=8, latency_s=0.4), REPLICA, dispersion=1.0, margin=0.0)
HOUR_S = 3600.0


def with_(**objectives: float | None) -> Known:
    return replace(KNOWN, objectives=replace(KNOWN.objectives, **objectives))  # type: ignore[arg-type]


def test_each_step_has_the_replicas_of_the_planners_sizing() -> None:
    course = outcome(KNOWN, [40.0, 400.0], 300.0)

    assert course.counts == tuple(replicas_within(rate, REPLICA, 0.4, most=21) for rate in (40.0, 400.0))
    assert course.most == course.counts[1]
    assert course.replica_hours == pytest.approx(sum(c or 0 for c in course.counts) / 12)
    assert course.short_hours == 0


def test_unknown_rates_are_not_zero_and_zero_needs_the_minimum() -> None:
    assert outcome(with_(low=2), [None, 0.0], HOUR_S).counts == (None, 2)
    assert outcome(with_(low=0), [None, 0.0], HOUR_S).counts == (None, 0)
    nothing = outcome(KNOWN, [None, None], HOUR_S)
    assert (nothing.replica_hours, nothing.most, nothing.short_hours) == (0.0, None, 0.0)


def test_a_limit_that_was_too_low_is_shown_with_its_hours() -> None:
    course = outcome(with_(high=2), [10.0, 1000.0, 1000.0, None], HOUR_S)

    assert course.counts[1:] == (2, 2, None)
    assert course.short_hours == 2.0


def test_the_outcome_includes_headroom_and_queue_depth() -> None:
    def count(known: Known) -> int:
        return outcome(known, [235.0], HOUR_S).most or 0

    plain = with_(latency_s=5.0)
    assert count(plain) == 3
    assert count(replace(plain, margin=1.0)) > 3
    assert count(with_(latency_s=5.0, queue_depth=0.01)) > 3


def test_utilisation_is_the_target_without_a_latency() -> None:
    assert outcome(with_(latency_s=None, utilization=0.5), [80.0, 81.0], HOUR_S).counts == (2, 3)


@given(
    st.lists(st.none() | st.floats(0, 5000), max_size=12),
    st.floats(0.01, 5),
    st.floats(0.01, 5),
    st.integers(0, 5),
    st.integers(5, 50),
)
def test_a_stricter_latency_never_needs_fewer_and_limits_are_kept(
    rates: list[float | None], first_s: float, second_s: float, low: int, high: int
) -> None:
    strict, loose = (
        outcome(with_(latency_s=s, low=low, high=high), rates, HOUR_S) for s in sorted((first_s, second_s))
    )

    for rate, more, fewer in zip(rates, strict.counts, loose.counts, strict=True):
        assert (more is None) == (fewer is None) == (rate is None)
        if more is not None and fewer is not None:
            assert low <= fewer <= more <= high
    assert strict.replica_hours >= loose.replica_hours
    assert strict.short_hours >= loose.short_hours
