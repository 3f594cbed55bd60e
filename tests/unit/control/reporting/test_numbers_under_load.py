"""What is derived of a model under load, from records to the numbers that are shown and decided by, against what the load is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from halcyon.control.reporting.dashboard_source import measured
from halcyon.dashboard.ports import ModelNumbers as Shown
from halcyon.scaling.hpa.metrics import queue_depth
from halcyon.scaling.observations import Value
from halcyon.scaling.planner.capacity.bounded_queue import RejectionBound
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.signals.clock import WallClock
from halcyon.signals.gpu_work import reported_work
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import SignalMemory, reading
from tests.unit.signals.records import haproxy, record, triton

SECONDS = 40
POD = PodReading("m-a-0", "ready", -60.0, -50.0)


@dataclass(frozen=True)
class Load:
    """A steady one on one pod whose page lacks the gauge of waiting requests."""

    rate: int
    """Requests per second."""
    waiting: int
    """Requests that wait in Triton at any time."""
    computing: int
    """Requests that Triton computes at any time."""
    rows: int = 1
    """Of a request."""
    together: int = 1
    """Requests in a batch."""

    def after(self, seconds: int) -> dict[str, int | None]:
        """Triton's counters: at any time each request in flight adds a second per second."""
        requests = self.rate * seconds
        return {
            "pending": None,
            "succeeded": requests,
            "failed": 0,
            "rows": requests * self.rows,
            "executions": requests // self.together,
            "queue_us": self.waiting * seconds * 1_000_000,
            "compute_us": self.computing * seconds * 1_000_000,
        }


LOADS = [
    pytest.param(Load(rate=800, waiting=24, computing=6, together=8), id="the demo's model"),
    pytest.param(Load(rate=40, waiting=2, computing=2, rows=32768, together=2), id="rows without end"),
    pytest.param(Load(rate=20_000, waiting=100_000, computing=2_000, rows=16, together=50), id="the longest queue"),
]


def loaded_store(load: Load) -> tuple[ObservationStore, float]:
    """A hub that has heard of it once a second, and when last."""
    hub = ObservationStore()
    for second in range(SECONDS):
        balancer = haproxy(requests=load.rate * second, inflight=load.waiting + load.computing)
        hub.receive(record(second, triton(at=second, **load.after(second)), balancer=balancer), float(second))
    return hub, SECONDS - 1.0


def shown(hub: ObservationStore, now: float) -> Shown:
    """As the dashboard has it."""
    picture = hub.snapshot("ns", "m", now)
    assert picture is not None
    return measured(picture, now, gpu=None)


def planned(hub: ObservationStore, now: float, memory: SignalMemory) -> tuple[Reading, SignalMemory]:
    """As the planner has it."""
    picture = hub.snapshot("ns", "m", now)
    assert picture is not None
    gathered = reading(picture, replicas=1, pods=(POD,), epoch=WallClock(0.0), memory=memory)
    return gathered.reading, gathered.memory


def ruled(hub: ObservationStore, now: float) -> float:
    """Queue depth, as the policy Rules has it."""
    observation = hub.observe("ns", "m", now)
    assert observation is not None
    depth = queue_depth(observation, target=16, replicas=1)
    assert isinstance(depth, Value), depth
    return depth.value


@pytest.mark.parametrize("load", LOADS)
def test_the_dashboard_shows_what_a_request_takes_in_triton(load: Load) -> None:
    dashboard = shown(*loaded_store(load))

    assert dashboard.latency_ms == pytest.approx(1000 * (load.waiting + load.computing) / load.rate)


@pytest.mark.parametrize("load", LOADS)
def test_the_queue_without_the_gauge_is_as_long_as_it_is(load: Load) -> None:
    hub, now = loaded_store(load)

    assert ruled(hub, now) == pytest.approx(load.waiting)
    assert planned(hub, now, SignalMemory())[0].waiting == pytest.approx(load.waiting)


@pytest.mark.parametrize("load", LOADS)
def test_rows_are_counted_however_many_a_request_has(load: Load) -> None:
    hub, now = loaded_store(load)
    picture = hub.snapshot("ns", "m", now)
    assert picture is not None

    assert shown(hub, now).batch == pytest.approx(load.rows * load.together)
    assert hub.mean_batch("ns", "m", now, 15.0) == pytest.approx(load.rows * load.together)
    # Growth counts with the sample that confirms it.
    assert reported_work(picture).rows == {"m-a-0": load.rate * load.rows * (SECONDS - 2)}


@pytest.mark.parametrize("load", LOADS)
def test_the_planner_learns_how_many_rows_a_request_has(load: Load) -> None:
    hub, memory = ObservationStore(), SignalMemory()
    for second in range(SECONDS):
        balancer = haproxy(requests=load.rate * second)
        hub.receive(record(second, triton(at=second, **load.after(second)), balancer=balancer), float(second))
        reading, memory = planned(hub, float(second), memory)

    assert reading.rows_per_request == pytest.approx(load.rows, rel=0.005)  # it is told to three digits


def test_requests_rejected_after_the_timeout_are_shown_and_scaled_for() -> None:
    # A burst at 20 s finds no server, waits for 30 s and is refused; one request per second beside it is served.
    burst, arrived_s, refused_s, now = 1000, 20, 50, 55
    hub = ObservationStore()
    memory, refusals = SignalMemory(), RejectionBound()
    for second in range(now + 1):
        waits = burst if arrived_s <= second < refused_s else 0
        balancer = haproxy(
            waits,
            requests=second + (burst if second >= arrived_s else 0),
            refused=burst if second >= refused_s else 0,
        )
        pod = triton(at=second, pending=0, succeeded=second, failed=0)
        hub.receive(record(second, pod, balancer=balancer), float(second))
        reading, memory = planned(hub, float(second), memory)
        if reading.waiting is not None:
            refusals = refusals.with_reading(float(second), reading.rejected, reading.waiting, 60.0)

    dashboard = shown(hub, float(now))
    assert dashboard.rejected == pytest.approx(burst / 15)
    assert dashboard.errors == 1.0
    assert reading.rejected == burst
    assert refusals.max_waiting() < burst  # what waits is followed no more as a queue without an end
    assert ruled(hub, float(now)) > burst / 15
