"""What peers do where their vectors don't go: missing metrics, pods under way, zero, panic, the baselines."""

from __future__ import annotations

import itertools

import pytest

from halcyon_simulator.engine.policy_view import SampleColumn
from halcyon_simulator.policies.peers import PEERS, build, sweep
from halcyon_simulator.policies.peers.hpa_controller import average_value, pods_mean
from tests.simulator.policies.peers.open_loop import OpenLoop, Shape, case, constant, replay, steps

LOADED: dict[SampleColumn, Shape] = {
    SampleColumn.ARRIVED: constant(100),
    SampleColumn.ANSWERED: constant(100),
    SampleColumn.INFLIGHT: constant(200),
    SampleColumn.WAITING: constant(100),
    SampleColumn.BUSY_S: constant(5),
    SampleColumn.QUEUE_S: constant(50),
}
ABSENT = dict.fromkeys(SampleColumn, constant(None))
SCALERS = sorted(PEERS.keys() - {"static"})


def _then_absent(at_s: float) -> dict[SampleColumn, Shape]:
    """Loaded for 5 replicas until `at_s`, nothing after."""

    def cut(shape: Shape) -> Shape:
        return lambda t: shape(t) if t < at_s else None

    return {signal: cut(shape) for signal, shape in LOADED.items()}


def _ramp() -> dict[SampleColumn, Shape]:
    """Half as much again as `LOADED` at 300 s, nothing at its ends."""

    def ramped(shape: Shape) -> Shape:
        return lambda t: (shape(t) or 0.0) * max(0.0, min(t, 600 - t)) / 200

    return {signal: ramped(shape) for signal, shape in LOADED.items()}


@pytest.mark.parametrize("name", SCALERS)
def test_a_peer_that_never_had_a_metric_keeps_the_replicas(name: str) -> None:
    params = {"ignore_null_values": "false"} if name == "keda" else {}
    assert replay(build(name, params, case()), ABSENT, until_s=400, first=7) == []


@pytest.mark.parametrize("name", SCALERS)
def test_a_metric_that_ends_never_lowers_the_replicas(name: str) -> None:
    params = {"ignore_null_values": "false"} if name == "keda" else {}
    changes = replay(build(name, params, case(high=20)), _then_absent(60), until_s=800, first=5, high=20)
    assert all(after >= before for (_, before), (_, after) in itertools.pairwise([(0.0, 5), *changes]))


def test_keda_takes_a_missing_series_for_zero_unless_configured_otherwise() -> None:
    assert replay(build("keda", {}, case()), _then_absent(90), until_s=800, first=20)[-1] == (390, 1)


def test_keda_does_not_go_to_zero_on_an_error() -> None:
    policy = build("keda", {"ignore_null_values": "false"}, case(low=0))
    assert replay(policy, _then_absent(100), until_s=1200, first=20, low=0) == []


@pytest.mark.parametrize("name", SCALERS)
def test_a_peer_says_the_same_for_the_same_view(name: str) -> None:
    runs = [replay(build(name, {}, case(low=0)), _ramp(), until_s=500, low=0) for _ in range(2)]
    assert runs[0] == runs[1]
    assert max((count for _, count in runs[0]), default=0) > 1


@pytest.mark.parametrize("name", SCALERS)
def test_noise_that_makes_a_gauge_negative_or_nan_breaks_no_peer(name: str) -> None:
    for value in (-3.0, float("nan"), float("inf"), 0.0, 1e12):
        policy = build(name, {}, case())
        assert policy.desired(OpenLoop(dict.fromkeys(SampleColumn, constant(value)), replicas=2)) >= 0


def test_external_metrics_are_divided_by_all_pods_and_tolerated_within_a_tenth() -> None:
    assert average_value(10.9, 1.0, pods=10, tolerance=0.1) == 10
    assert average_value(11.1, 1.0, pods=10, tolerance=0.1) == 12
    assert average_value(3.0, 1.0, pods=0, tolerance=0.1) == 3
    assert average_value(None, 1.0, pods=10, tolerance=0.1) is None


def test_starting_pods_count_as_idle_upwards_and_at_the_target_downwards() -> None:
    def count(mean: float, target: float, *, ready: int, missing: int = 0, unready: int = 0) -> int | None:
        current = ready + missing + unready
        return pods_mean(mean, target, ready=ready, missing=missing, unready=unready, current=current, tolerance=0.1)

    # Up: (2 x 100 + 3 x 0) / 5 = 40 of 80 would flip the direction.
    assert count(100, 80, ready=2, unready=3) == 5
    # Up: (100 + 0) / 2 = 50 of 20, 2.5 x 2 pods.
    assert count(100, 20, ready=1, unready=1) == 5
    assert count(100, 20, ready=1, missing=1) == 5
    # Down: (2 x 20 + 2 x 80) / 4 = 50 of 80, 0.625 x 4 pods = 2.5.
    assert count(20, 80, ready=2, missing=2) == 3
    # Down: those that are not asked yet are left out, 0.25 x 2.
    assert count(20, 80, ready=2, unready=2) == 1
    # Nobody to ask.
    assert count(100, 80, ready=0, missing=2) is None


def test_knative_does_not_see_pods_under_way_and_never_lowers_in_panic() -> None:
    policy = build("kpa", {}, case())
    load: dict[SampleColumn, Shape] = {SampleColumn.INFLIGHT: steps([(0, 5), (10, 100), (14, 5)])}
    view = OpenLoop(load, replicas=1, phases=("ready",))
    counts = []
    for tick in range(100):
        view.now = 2.0 * tick
        counts.append(policy.desired(view))
    # The panic window's largest mean is at 14: (100 x 4 + 5 x 2) / 6 = 68.3, over 7.
    assert max(counts) == 10
    began, over = counts.index(10), len(counts) - counts[::-1].index(10)
    assert set(counts[began:over]) == {10}
    # The last tick over the threshold is 18 (8 or more of 7 in the mean of 6 s), and the panic ends more than 60 s later.
    assert 2.0 * over == 80
    assert counts[-1] == 1


def test_knative_goes_to_zero_after_the_stable_window_and_the_grace_period() -> None:
    policy = build("kpa", {}, case(low=0))
    changes = replay(policy, {SampleColumn.INFLIGHT: steps([(0, 5), (100, 0), (300, 1)])}, until_s=310, low=0)
    # The last request is in the sample of 99, which leaves the window at 159: tick 160, and 30 s more.
    assert changes == [(190, 0), (300, 1)]


@pytest.mark.parametrize(("name", "down_s"), [("ray", 729), ("kubeai", 710)])
def test_peers_that_hold_requests_come_back_from_zero_at_once(name: str, down_s: float) -> None:
    load: dict[SampleColumn, Shape] = {SampleColumn.INFLIGHT: steps([(0, 5), (100, 0), (1000, 5)])}
    changes = replay(build(name, {}, case(low=0)), load, until_s=1005, low=0)
    # Ray: the window of 30 s is empty at 129, and 600 s pass. KubeAI: the sample of 90 leaves at 690, the third zero is at 710.
    assert changes == [(down_s, 0), (1000, 1)]


def test_kubeai_decides_at_each_interval_below_a_second() -> None:
    policy = build("kubeai", {"interval_s": "0.1", "time_window_s": "1", "target": "10"}, case())
    time_s, count = replay(policy, {SampleColumn.INFLIGHT: steps([(0, 10), (20, 100)])}, until_s=40)[-1]
    # The window has only samples of the new load after a second.
    assert count == 10
    assert 20 <= time_s < 21.1


@pytest.mark.parametrize("name", ["hpa", "kserve", "wva-hpa", "aibrix", "cortex", "triton-gke", "triton-onprem"])
def test_peers_without_zero_keep_one_replica(name: str) -> None:
    idle = dict.fromkeys(SampleColumn, constant(0))
    assert replay(build(name, {}, case(low=0)), idle, until_s=3000, first=1, low=0) == []


def test_the_hpa_on_waiting_requests_falls_to_the_minimum_when_nothing_waits() -> None:
    load: dict[SampleColumn, Shape] = {SampleColumn.WAITING: constant(0), SampleColumn.INFLIGHT: constant(100)}
    assert replay(build("hpa", {"metric": "queue"}, case()), load, until_s=1000, first=10) == [(315, 1)]


def test_a_sample_of_triton_keeps_its_own_maximum_only_if_asked() -> None:
    for cap, most in (({"cap": "3"}, 3), ({}, 9)):
        changes = replay(
            build("triton-gke", cap, case(high=9)), {SampleColumn.BUSY_S: constant(50)}, until_s=600, high=9
        )
        assert changes[-1][1] == most


def test_static_needs_the_busiest_minute_or_its_parameter() -> None:
    # 10 requests a second at 10 a second and replica, 85 % full.
    assert build("static", {}, case()).desired(OpenLoop(ABSENT)) == 2
    assert build("static", {"n": "7"}, case()).desired(OpenLoop(ABSENT)) == 7


def test_the_sketch_adds_backlog_and_trend_to_the_rate() -> None:
    def count(arrived: Shape, waiting: float) -> int:
        policy = build("sketch", {"start_s": "60"}, case())
        return policy.desired(
            OpenLoop({SampleColumn.ARRIVED: arrived, SampleColumn.WAITING: constant(waiting)}, now=300.0)
        )

    # 100 / 8.5 = 11.8.
    assert count(constant(100), 0) == 12
    # 600 waiting, 10 a second, within 30 s: 2 more.
    assert count(constant(100), 600) == 14
    # From 50 to 100 within 30 s is no chance: 100 more in 60 s, 200 / 8.5 = 23.5.
    assert count(steps([(0, 50), (271, 100)]), 0) == 24
    # From 98 to 100 may be chance.
    assert count(steps([(0, 98), (271, 100)]), 0) == 12


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_sweep_has_at_most_fifteen_points_that_all_build_and_differ(name: str) -> None:
    points = sweep(name, case())
    assert 3 <= len(points) <= 15
    assert len({tuple(sorted(point.items())) for point in points}) == len(points)
    for point in points:
        assert build(name, point, case()).period_s > 0


def test_a_sweep_covers_a_replicas_capacity_from_three_tenths_to_all() -> None:
    targets = [point["target"] for point in sweep("wva-hpa", case(max_batch=4))]
    assert targets[:5] == ["1.2", "2", "2.8", "3.4", "4"]
    assert {point["target_percentage"] for point in sweep("kpa", case())} == {"30", "50", "70", "85", "100"}
