import argparse
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.control.reporting.dashboard_source import _gpu as gpu_of
from halcyon.control.reporting.dashboard_source import due, due_at, measured, sliced
from halcyon.control.runtime import settings
from halcyon.dashboard.history import ChartHistory, ReplicaCounts
from halcyon.dashboard.ports import UNKNOWN, ModelNumbers, Name
from halcyon.kube.errors import SettingsError
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.store_state import ModelSnapshot, PodFacts, PodSnapshot
from halcyon.signals.time_series import Ring
from tests.unit.signals.records import record, triton

NAMES = [Name("team", f"m-{number}") for number in range(40)]


def test_each_model_is_due_once_in_ten_seconds() -> None:
    seen = [name for second in range(100, 110) for name in due(sliced(NAMES), second - 1, second)]
    assert sorted(seen) == sorted(NAMES)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_missed_seconds_leave_out_no_model(steps: list[int]) -> None:
    now, seen = 0, set[Name]()
    for step in [*steps, 10]:
        seen |= set(due(sliced(NAMES), now, now + step))
        now += step
    assert seen == set(NAMES)


def ring(*rows: tuple[float, ...]) -> Ring:
    buffer = Ring(len(rows[0]), max_age_s=60.0)
    for row in rows:
        buffer.add(row)
    return buffer


def picture(balancers: list[Ring], servers: list[Ring]) -> ModelSnapshot:
    pods = {f"p-{n}": PodSnapshot(f"p-{n}", PodFacts("ready"), samples, None) for n, samples in enumerate(servers)}
    return ModelSnapshot(100.0, pods, tuple((f"b-{n}", samples) for n, samples in enumerate(balancers)), ())


def test_reports_of_agents_become_rates_and_sums() -> None:
    # time, then what BalancerPoint has; below, what PodPoint has
    balancer = ring((90.0, 7, 0, 1000, 0, 0, 80, 0), (100.0, 9, 3, 1200, 20, 10, 90, 5))
    server = ring((90.0, 4, 50, 500, 0, 0, 0, 0, 0), (100.0, 8, 60, 600, 5, 500, 200, 200_000, 600_000))
    assert measured(picture([balancer, balancer], [server]), 100.0, gpu=60.0) == ModelNumbers(
        rate=40.0, waiting=18.0, latency_ms=8.0, batch=2.5, gpu=60.0, rejected=4.0, lost=2.0, failed=1.0
    )


def test_servers_give_the_rate_without_balancers() -> None:
    server = ring((90.0, 4, 50, 500, 0, 0, 0, 0, 0), (100.0, 8, 60, 600, 0, 0, 0, 0, 0))
    figures = measured(picture([], [server]), 100.0, gpu=None)
    assert (figures.rate, figures.waiting, figures.rejected) == (10.0, 4.0, None)


def test_missing_and_old_reports_are_unknown() -> None:
    assert measured(picture([], []), 100.0, gpu=None) == ModelNumbers()
    old = ring((10.0, 7, 3, 1000, 0, 0), (20.0, 7, 3, 1200, 0, 0))
    silent = ring((99.0, *[math.nan] * 8), (100.0, *[math.nan] * 8))
    assert measured(picture([old], [silent]), 100.0, gpu=None) == ModelNumbers()


def options(*more: str) -> settings.OperatorSettings:
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    needed = ("--namespace=n", "--operator-image=o", "--balancer-image=b", "--server-image=s")
    return settings.of(parser.parse_args([*needed, *more]))


def test_the_dashboard_is_absent_unless_enabled() -> None:
    assert options().dashboard is None


def test_a_proxy_belongs_to_a_dashboard_with_sign_in() -> None:
    dashboard = options("--dashboard=pod", "--dashboard-proxy=10.0.0.0/24").dashboard
    assert dashboard is not None
    assert dashboard.proxy is not None
    assert (dashboard.local, dashboard.port, dashboard.proxy.user_header) == (False, 8090, "X-Forwarded-User")
    with pytest.raises(SettingsError, match="--dashboard=localhost, which has no sign-in"):
        options("--dashboard=localhost", "--dashboard-proxy=10.0.0.0/24")


def test_addresses_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--dashboard=pod", "--dashboard-proxy=10.0.0.1/24")
    assert "for example 10.0.12.0/24" in capsys.readouterr().err


def test_pods_that_are_not_ready_have_no_share_in_waiting_and_gpu() -> None:
    hub = ObservationStore()
    for second in range(20):
        ready = [triton(f"m-a-{n}", at=second, gpu=0.9, pending=2) for n in range(2)]
        ending = [triton(f"m-b-{n}", "draining", at=second, gpu=0.0, pending=9) for n in range(4)]
        hub.receive(record(second, *ready, *ending), float(second))
    seen = hub.snapshot("ns", "m", 19.0)
    assert seen is not None
    assert gpu_of(seen, 19.0) == pytest.approx(90.0)
    assert measured(seen, 19.0, gpu=None).waiting == pytest.approx(4.0)


def test_a_slow_sampling_loop_leaves_no_step_of_a_chart_empty() -> None:
    history, slices, before, now = ChartHistory(), sliced(NAMES), 999, 1000.0
    while now < 2000.0:
        for name in due(slices, before, int(now)):
            history.add(name, due_at(name, int(now)), ReplicaCounts(replicas=1, ready=1, desired=1), UNKNOWN)
        before, now = int(now), now + 1.013
    assert {row[0] for name in NAMES for row in history.series(name).rows} == {1}
