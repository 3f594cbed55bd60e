"""From observations to the two values that are served."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.scaling.hpa.metrics import filled, gpu_utilization, queue_depth, read
from halcyon.scaling.observations import (
    MAX_AGE_S,
    BalancerPoint,
    Missing,
    PodPoint,
    Value,
    mean,
    mean_batch,
    mean_of_sum,
    rate,
    total_rate,
)
from tests.unit.scaling.observation_builders import NOW, balancer, model, pod

OLD = tuple(NOW - MAX_AGE_S - age for age in (3.0, 2.0, 1.0))


def value(result: Value | Missing | None) -> float:
    assert isinstance(result, Value), result
    return result.value


def reason(result: Value | Missing | None) -> str:
    assert isinstance(result, Missing), result
    return result.reason


def test_the_queue_is_waiting_requests_plus_rejections_per_second() -> None:
    seen = model(balancer(3, refused_per_s=2), balancer(4, agent="b-1"), pod(pending=5.0), pod("p-1", pending=6.0))
    assert value(queue_depth(seen, target=16, replicas=2)) == pytest.approx(3 + 4 + 2 + 5 + 6)


def test_a_starting_or_draining_pod_adds_nothing_to_the_queue() -> None:
    seen = model(
        balancer(3), pod(pending=5.0), pod("p-1", "starting", pending=7.0), pod("p-2", "draining", pending=9.0)
    )
    assert value(queue_depth(seen, target=16, replicas=2)) == pytest.approx(8)


def test_the_queue_of_a_model_without_a_ready_pod_is_known() -> None:
    assert value(queue_depth(model(balancer(30), pod(state="starting")), target=16, replicas=1)) == pytest.approx(30)


def test_a_silent_ready_pod_counts_as_the_target_on_the_way_down() -> None:
    seen = model(balancer(0), pod(pending=2.0), pod("p-1", pending=None))
    assert value(queue_depth(seen, target=16, replicas=2)) == pytest.approx(2 + 16)


def test_a_silent_ready_pod_counts_as_zero_on_the_way_up() -> None:
    seen = model(balancer(50), pod(pending=20.0), pod("p-1", times=OLD))
    assert value(queue_depth(seen, target=16, replicas=2)) == pytest.approx(70)


def test_rejected_requests_are_in_the_signal_and_not_in_what_waits() -> None:
    seen = model(balancer(3, refused_per_s=5.0), pod(pending=2.0), pod("p-1", pending=None))
    read_now = read(seen, targets=ResolvedTargets(queue_depth=16, gpu_utilization=None), replicas=2)
    assert value(read_now.queue_depth) == pytest.approx(3 + 2 + 5 + 16)
    assert read_now.waiting == pytest.approx(3 + 2)


def test_gpu_is_the_sum_over_ready_pods() -> None:
    seen = model(balancer(), pod(gpu=90.0), pod("p-1", gpu=40.0))
    assert value(gpu_utilization(seen, target=80, replicas=2)) == pytest.approx(130)


@pytest.mark.parametrize(
    ("busy", "starting", "expected"),
    [
        (50.0, 1, 130.0),
        (79.0, 1, 159.0),
        (95.0, 1, 160.0),
        (100.0, 3, 320.0),
        (0.0, 2, 160.0),
    ],
)
def test_a_starting_pod_never_turns_the_direction_round(busy: float, starting: int, expected: float) -> None:
    pods = [pod(f"s-{n}", "starting", gpu=None) for n in range(starting)]
    seen = model(balancer(), pod(gpu=busy), *pods)
    assert value(gpu_utilization(seen, target=80, replicas=1 + starting)) == pytest.approx(expected)


def test_many_busy_pods_go_up_although_one_starts() -> None:
    seen = model(balancer(), *(pod(f"p-{n}", gpu=100.0) for n in range(9)))
    # S / T = 900 / 80 = 11.25 > 10: up, as if the starting one did nothing
    assert value(gpu_utilization(seen, target=80, replicas=10)) == pytest.approx(900)


def hpa_pods_metric(samples: list[float], missing: int, target: float) -> int:
    """The HPA's rule for Pods metrics, facts/autoscaling 1.3, step by step."""
    ready, current = len(samples), len(samples) + missing
    # In fractions: 16.18 x 22 is 356 or 357 by the order of the operations.
    ratio = Fraction(sum(samples)) / Fraction(target) / ready
    if not missing:
        return current if 0.9 <= float(ratio) <= 1.1 else math.ceil(ratio * ready)
    filled_in = samples + [target if ratio < 1 else 0.0] * missing if ratio != 1 else samples
    again = Fraction(sum(filled_in)) / Fraction(target) / len(filled_in)
    if 0.9 <= float(again) <= 1.1 or (ratio < 1 < again) or (again < 1 < ratio):
        return current
    count = math.ceil(again * len(filled_in))
    return current if (again < 1 and count > current) or (again > 1 and count < current) else count


@given(
    samples=st.lists(st.integers(0, 100).map(float), min_size=1, max_size=12),
    missing=st.integers(0, 12),
    target=st.integers(1, 100),
)
def test_the_hpa_treats_the_filled_total_like_its_pods_metric(samples: list[float], missing: int, target: int) -> None:
    current = len(samples) + missing
    total = filled(sum(samples), missing=missing, target=target, replicas=current)
    ratio = total / (target * current)
    external = current if 0.9 <= ratio <= 1.1 else math.ceil(total / target)
    assert external == hpa_pods_metric(samples, missing, float(target))


@given(
    pair=st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)).map(sorted),
    missing=st.integers(0, 20),
    target=st.integers(1, 100),
    replicas=st.integers(0, 40),
)
def test_filling_in_is_steady_and_never_below_what_is_known(
    pair: list[float], missing: int, target: int, replicas: int
) -> None:
    less, more = (filled(known, missing=missing, target=target, replicas=replicas) for known in pair)
    assert less <= more
    assert less >= pair[0]


def test_the_value_is_absent_without_a_target() -> None:
    reading = read(model(balancer(), pod()), targets=ResolvedTargets(16, None), replicas=1)
    assert reading.gpu_utilization is None


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (model(), "no balancer agent has reported"),
        (model(silent=(("b-0", 12.0),)), "b-0 for 12 s"),
        (model(balancer(times=OLD), pod(times=OLD)), "newer than 10 s"),
        (model(balancer(times=OLD), pod()), "HAProxy of b-0 does not respond"),
        (model(balancer(times=()), pod()), "HAProxy of b-0 does not respond"),
        (model(balancer(times=(NOW,)), pod()), "needs two"),
        (model(balancer(), pod(pending=None)), "no ready pod reports its queue"),
        (model(balancer(), pod(times=OLD)), "no ready pod reports its queue"),
        (model(balancer(), pod(state="unreachable", times=())), "no ready pod reports its queue"),
    ],
)
def test_a_queue_that_is_not_known_is_missing_with_its_reason(seen: object, words: str) -> None:
    assert words in reason(queue_depth(seen, target=16, replicas=1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (model(), "no balancer agent has reported"),
        (model(balancer(), pod(gpu=None)), "nv_gpu_utilization: p-0"),
        (model(balancer(), pod(times=OLD)), "nv_gpu_utilization: p-0"),
        (model(balancer(), *(pod(f"p-{n}", gpu=None) for n in range(5))), "p-0, p-1, p-2 and 2 more"),
    ],
)
def test_a_gpu_that_is_not_known_is_missing_with_its_reason(seen: object, words: str) -> None:
    assert words in reason(gpu_utilization(seen, target=80, replicas=1))  # type: ignore[arg-type]


def test_without_a_ready_pod_gpu_changes_nothing_and_has_no_mean() -> None:
    for replicas, seen in ((0, model(balancer())), (2, model(balancer(), pod(state="starting")))):
        signals = read(seen, targets=ResolvedTargets(queue_depth=16, gpu_utilization=80), replicas=replicas)
        assert value(signals.gpu_utilization) == 80 * replicas  # type: ignore[arg-type]
        assert signals.gpu_mean is None


def test_the_mean_gpu_is_that_of_ready_pods() -> None:
    seen = model(balancer(), pod(gpu=90.0), pod("p-1", gpu=50.0), pod("p-2", "starting", gpu=None))
    signals = read(seen, targets=ResolvedTargets(queue_depth=16, gpu_utilization=80), replicas=3)
    assert signals.gpu_mean == pytest.approx(70)


def test_gpu_is_known_where_a_balancer_is_not() -> None:
    seen = model(balancer(times=OLD), pod(gpu=60.0))
    assert value(gpu_utilization(seen, target=80, replicas=1)) == pytest.approx(60)


def test_one_silent_balancer_of_two_is_left_out() -> None:
    seen = model(balancer(8), balancer(8, agent="b-1", times=OLD), pod(pending=1.0))
    assert value(queue_depth(seen, target=16, replicas=1)) == pytest.approx(9)


def points(*pairs: tuple[float, float | None]) -> list[PodPoint]:
    return [PodPoint(at, pending=seen) for at, seen in pairs]


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (points((NOW - 20, 5.0), (NOW - 5, 20.0)), (5.0 * 10 - 5.0 * 5 + 20.0 * 5) / 10),
        (points((NOW, 7.0)), 7.0),
        (points((NOW - 10, 0.0), (NOW - 5, 30.0)), 15.0),
        (points((NOW - 10, 4.0), (NOW - 5, None)), 4.0),
        (points((NOW - 10, None)), None),
        ([], None),
    ],
    ids=["held for 10 s at most", "only now", "halves", "unknown has no weight", "nothing known", "nothing"],
)
def test_a_value_holds_until_the_next(series: list[PodPoint], expected: float | None) -> None:
    result = mean(series, NOW, 15.0, lambda p: p.pending)
    assert result == (None if expected is None else pytest.approx(expected))


def test_requests_that_move_between_balancers_are_not_counted_twice() -> None:
    old = [PodPoint(NOW - 15, pending=20.0), PodPoint(NOW - 5, pending=10.0)]
    new = [PodPoint(NOW - 5, pending=10.0)]
    assert mean_of_sum([old, new], NOW, 15.0, lambda p: p.pending) == pytest.approx(20)
    assert mean_of_sum([new], NOW, 15.0, lambda p: p.pending) == pytest.approx(10)
    assert mean_of_sum([], NOW, 15.0, lambda p: p.pending) is None


def test_a_rate_needs_two_points() -> None:
    points = [BalancerPoint(NOW, 0, 0, 10, 0, 0, NOW)]
    assert rate(points, NOW, 15, lambda p: p.requests) is None
    assert rate([*points, BalancerPoint(NOW + 2, 0, 0, 30, 0, 0, NOW)], NOW + 2, 15, lambda p: p.requests) == 10


def test_two_records_at_once_do_not_read_as_a_flood() -> None:
    close = [BalancerPoint(NOW, 0, 0, 0, 0, 0, NOW), BalancerPoint(NOW + 0.001, 0, 0, 5, 0, 0, NOW)]
    assert rate(close, NOW + 1, 15, lambda p: p.requests) == 5


def test_mean_batch_and_request_rate_come_from_counters() -> None:
    ran = tuple(PodPoint(NOW - 10 + n, rows=80.0 * n, executions=10.0 * n) for n in range(11))
    seen = model(balancer(), pod())
    seen = model(*seen.balancers, type(seen.pods[0])("p", "ready", ran))
    assert mean_batch(seen, 15.0) == pytest.approx(8)
    assert total_rate([b.points for b in seen.balancers], NOW, 15.0, lambda p: p.requests) == pytest.approx(50)
    assert mean_batch(model(pod()), 15.0) is None
