"""Several agents' records become one picture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import BalancerSample, PodSample
from halcyon.scaling.observations import Observation, rate, total_rate
from halcyon.signals.observation_store import EXPIRE_TIMEOUT_S, MAX_AGENTS, ObservationStore
from halcyon.signals.store_state import MAX_REJECTABLE, POD_COUNTERS
from tests.unit.signals.records import EPOCH, haproxy, record, triton


def observation_of(hub: ObservationStore, now: float, name: str = "m") -> Observation:
    observation = hub.observe("ns", name, now)
    assert observation is not None
    return observation


def test_an_unreported_model_is_not_an_empty_observation() -> None:
    assert ObservationStore().observe("ns", "m", 0.0) is None


def test_balancers_stand_side_by_side() -> None:
    hub = ObservationStore()
    hub.receive(record(0, balancer=haproxy(3)), 0.0)
    hub.receive(record(0, agent="m-balancer-1", balancer=haproxy(4)), 0.1)
    assert [(b.agent, b.points[-1].queued) for b in observation_of(hub, 0.2).balancers] == [
        ("m-balancer-0", 3),
        ("m-balancer-1", 4),
    ]


def test_the_newest_sample_of_a_pod_wins_whatever_the_order() -> None:
    older = record(1, triton(at=0.4, pending=1), agent="a")
    newer = record(1, triton(at=0.9, pending=2), agent="b")
    for records in ([older, newer], [newer, older]):
        hub = ObservationStore()
        for report in records:
            hub.receive(report, 1.0)
        (pod,) = observation_of(hub, 1.0).pods
        assert pod.points[-1].at == pytest.approx(0.9)
        assert pod.points[-1].pending == 2


@pytest.mark.parametrize("skew", [-86400.0, -3.0, 5.0, 3600.0])
def test_a_wrong_clock_of_an_agent_changes_nothing(skew: float) -> None:
    hub = ObservationStore()
    for second in range(5):
        hub.receive(record(second, triton(at=second - 0.5, pending=1), agent="right"), float(second))
        hub.receive(record(second, triton(at=second - 0.2, pending=2), agent="wrong", skew=skew), second + 0.1)
    (pod,) = observation_of(hub, 4.2).pods
    assert pod.points[-1].pending == 2
    assert pod.points[-1].at == pytest.approx(3.9)
    hub.receive(record(6, triton(at=5.9, pending=7), agent="right"), 6.0)
    assert observation_of(hub, 6.0).pods[0].points[-1].pending == 7


def test_a_clock_set_back_is_believed_and_a_late_record_is_not() -> None:
    hub = ObservationStore()
    assert hub.receive(record(100, balancer=haproxy(1)), 0.0)
    assert not hub.receive(record(99, balancer=haproxy(2)), 0.5)
    assert hub.receive(record(50, balancer=haproxy(3)), 1.0)
    assert observation_of(hub, 1.0).balancers[0].points[-1].queued == 3


def test_a_records_wait_for_its_connection_is_part_of_its_age() -> None:
    hub = ObservationStore()
    for at, sent in ((0.0, 0.8), (1.0, 1.0), (2.0, 2.0)):
        hub.receive(
            record(
                at,
                triton(at=at - 0.1),
                balancer=haproxy(requests=int(90 * at)),
                sent=EPOCH + sent,
            ),
            sent,
        )
    (balancer,) = observation_of(hub, 2.0).balancers
    assert [point.at for point in balancer.points] == pytest.approx([0.0, 1.0, 2.0], abs=1e-6)
    assert [point.at for point in observation_of(hub, 2.0).pods[0].points] == pytest.approx([-0.1, 0.9, 1.9], abs=1e-6)
    assert [(point.counted_at, point.requests) for point in balancer.points][-1] == pytest.approx((1.0, 90.0))


def test_a_sample_that_an_agent_keeps_repeating_grows_old() -> None:
    hub = ObservationStore()
    for second in range(15):
        hub.receive(record(second, triton(at=0)), float(second))
    assert observation_of(hub, 14.0).pods[0].points[-1].at == pytest.approx(0.0)


def test_a_silent_agent_leaves_the_observation_and_is_named() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton("p-0"), agent="gone", balancer=haproxy(9)), 0.0)
    for second in range(12):
        hub.receive(record(second, triton("p-1", at=second)), float(second))
    observation = observation_of(hub, 11.0)
    assert [b.agent for b in observation.balancers] == ["m-balancer-0"]
    assert [pod.name for pod in observation.pods] == ["p-1"]
    assert observation.silent == (("gone", 11.0),)


def test_a_balancer_that_does_not_answer_leaves_no_points() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton(), balancer=haproxy(9)), 0.0)
    for second in range(1, 12):
        sent = record(second, triton(at=second))
        hub.receive(type(sent)(sent.namespace, sent.name, sent.agent, sent.at, None, sent.pods), float(second))
    (balancer,) = observation_of(hub, 11.0).balancers
    assert balancer.points[-1].at == 0.0


def test_a_pod_that_no_agent_names_any_more_is_gone() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton("p-0"), triton("p-1")), 0.0)
    hub.receive(record(1, triton("p-1", at=1)), 1.0)
    assert [pod.name for pod in observation_of(hub, 1.0).pods] == ["p-1"]


def test_an_agent_ignorant_of_a_pod_does_not_hide_anothers_sample() -> None:
    hub = ObservationStore()
    blank = PodSample("m-a-0", "unreachable", record(0).at + 1)
    for second in range(3):
        hub.receive(record(second, triton(at=second, pending=4), agent="a"), float(second))
        hub.receive(record(second, blank, PodSample("m-a-0", "ready", record(second).at), agent="b"), second + 0.1)
    (pod,) = observation_of(hub, 2.2).pods
    assert (pod.state, pod.points[-1].pending) == ("ready", 4)


@pytest.mark.parametrize(
    ("state", "other", "merged"),
    [
        ("ready", "starting", "ready"),
        ("ready", "unreachable", "ready"),
        ("ready", "maintenance", "maintenance"),
        ("draining", "ready", "draining"),
        ("unreachable", "unreachable", "unreachable"),
    ],
)
def test_the_graver_report_on_a_pod_counts(state: str, other: str, merged: str) -> None:
    for first, second in ((state, other), (other, state)):
        hub = ObservationStore()
        hub.receive(record(0, triton(state=first), agent="a"), 0.0)
        hub.receive(record(0, triton(state=second), agent="b"), 0.0)
        assert observation_of(hub, 0.0).pods[0].state == merged


def test_a_gpu_is_never_more_than_wholly_busy() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton(gpu=1.03)), 0.0)
    assert observation_of(hub, 0.0).pods[0].points[-1].gpu == 100.0


def test_a_restarted_pod_counts_from_zero() -> None:
    hub = ObservationStore()
    for second, rows in enumerate([1000, 1010, 3, 13, 23, 23]):
        hub.receive(record(second, triton(at=second, rows=rows)), float(second))
    points = observation_of(hub, 5.0).pods[0].points
    assert points[-1].rows is not None
    assert points[0].rows is not None
    assert points[-1].rows - points[0].rows == 10 + 23


def test_one_bad_sample_of_a_counter_adds_nothing() -> None:
    hub = ObservationStore()
    for second, refused in enumerate([500_000, 500_001, 7, 500_002, 900_000, 500_003, 250_000, 500_004, 500_004]):
        hub.receive(record(second, balancer=haproxy(refused=refused, requests=refused)), float(second))
    points = observation_of(hub, 8.0).balancers[0].points
    assert points[-1].rejected - points[0].rejected == 4


def test_more_refusals_than_requests_are_a_bad_sample() -> None:
    hub = ObservationStore()
    for second in range(6):
        hub.receive(record(second, balancer=haproxy(refused=1000 * second, requests=10 * second)), float(second))
    points = observation_of(hub, 5.0).balancers[0].points
    assert points[-1].rejected - points[0].rejected == 40


def test_surplus_rejections_are_no_debt_of_later_requests() -> None:
    hub = ObservationStore()
    for second in range(8):
        refused = 0 if second < 2 else 500_000
        hub.receive(record(second, balancer=haproxy(refused=refused, requests=10 * second)), float(second))
    points = observation_of(hub, 7.0).balancers[0].points
    assert [point.rejected for point in points] == [0, 0, 0, 20, 20, 20, 20, 20]


def refused_of(hub: ObservationStore, *samples: BalancerSample) -> float:
    """Return the requests refused after these samples, one per second and the last one twice."""
    for second, sample in enumerate((*samples, samples[-1])):
        hub.receive(record(second, balancer=sample), float(second))
    return observation_of(hub, float(len(samples))).balancers[0].points[-1].rejected


@pytest.mark.parametrize("late_s", [1, 30, 3600])
def test_refusals_count_however_long_after_their_requests_they_come(late_s: int) -> None:
    hub = ObservationStore()
    samples = [haproxy(requests=5)] + [haproxy(1000, requests=1005 + second) for second in range(late_s)]
    assert refused_of(hub, *samples, haproxy(requests=1005 + late_s, refused=1000)) == 1000


def test_a_restarted_balancer_rejects_requests_that_its_predecessor_counted() -> None:
    before = [haproxy(requests=100), haproxy(40, requests=160, refused=20), haproxy(40, requests=160, refused=20)]
    after = [haproxy(40, requests=1), haproxy(40, requests=2), haproxy(requests=3, refused=40)]
    assert refused_of(ObservationStore(), *before, *after) == 60


def test_requests_that_waited_before_the_first_record_are_rejected_too() -> None:
    hub = ObservationStore()
    assert refused_of(hub, haproxy(30, requests=900, refused=7), haproxy(requests=901, refused=37)) == 30


def test_earlier_arrivals_are_rejected_up_to_the_queues_size() -> None:
    hub = ObservationStore()
    served = [haproxy(requests=900_000 * second) for second in range(5)]
    assert refused_of(hub, *served, haproxy(requests=3_600_000, refused=900_000)) == MAX_REJECTABLE


JUMPS = [1, 2, 10**15, 10**15 + 1, 10**15 + 1]


def test_a_counter_that_jumps_beyond_reason_adds_nothing() -> None:
    hub = ObservationStore()
    for second, refused in enumerate(JUMPS):
        hub.receive(record(second, balancer=haproxy(refused=refused, requests=refused)), float(second))
    points = observation_of(hub, 4.0).balancers[0].points
    assert points[-1].rejected - points[0].rejected == 2


@pytest.mark.parametrize("counter", POD_COUNTERS)
def test_no_counter_of_a_pod_jumps_beyond_reason(counter: str) -> None:
    hub = ObservationStore()
    for second, value in enumerate(JUMPS):
        hub.receive(record(second, triton(at=second, **{counter: value})), float(second))
    points = observation_of(hub, 4.0).pods[0].points
    assert getattr(points[-1], counter) - getattr(points[0], counter) == 2


@pytest.mark.parametrize("counter", POD_COUNTERS)
def test_one_bad_sample_of_any_counter_of_a_pod_adds_nothing(counter: str) -> None:
    hub = ObservationStore()
    for second, value in enumerate([500_000, 500_001, 7, 500_002, 900_000, 500_003, 250_000, 500_004, 500_004]):
        hub.receive(record(second, triton(at=second, **{counter: value})), float(second))
    points = observation_of(hub, 8.0).pods[0].points
    assert getattr(points[-1], counter) - getattr(points[0], counter) == 4


@pytest.mark.parametrize("counter", ["queue_us", "compute_us"])
def test_requests_that_end_together_bring_all_their_time_at_once(counter: str) -> None:
    hub, minute_us = ObservationStore(), 60 * 1_000_000
    for second, ended in enumerate([0, 0, 0, 65536, 65536, 65536]):
        hub.receive(record(second, triton(at=second, **{counter: ended * minute_us})), float(second))
    points = observation_of(hub, 5.0).pods[0].points
    assert getattr(points[-1], counter) == 65536 * minute_us


def test_two_agents_that_read_one_pod_do_not_count_it_twice() -> None:
    hub = ObservationStore()
    for second in range(15):
        hub.receive(record(second, triton(at=second, rows=100 * second), agent="a"), float(second))
        late = second - 0.5
        hub.receive(record(second, triton(at=late, rows=round(100 * late) + 50), agent="b"), second + 0.05)
    points = observation_of(hub, 14.1).pods[0].points
    assert rate(points, 14.1, 15.0, lambda p: p.rows) == pytest.approx(100, rel=0.1)


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, namespace: str, name: str) -> None:
        assert namespace == "ns"
        self.names.append(name)

    def count(self) -> int:
        count, self.names = len(self.names), []
        return count


def test_the_controller_is_notified_of_changes_and_of_nothing_else() -> None:
    listener = Listener()
    hub = ObservationStore(listener)
    hub.receive(record(0, triton(state="starting")), 0.0)
    listener.count()
    hub.receive(record(1, triton(state="starting", at=1)), 1.0)
    assert listener.count() == 0
    hub.receive(record(2, triton(state="starting", at=2, load_error="no such file")), 2.0)
    assert listener.count() == 1
    hub.receive(record(3, triton(at=3, versions=("1",))), 3.0)
    assert listener.count() == 1
    hub.receive(record(4, triton(at=4, versions=("1",), pending=50, gpu=0.9)), 4.0)
    assert listener.count() == 0
    hub.receive(record(5, triton(at=5, versions=("1",), state="maintenance")), 5.0)
    assert listener.count() == 1


@pytest.mark.parametrize("waiting", [haproxy(1), haproxy(refused=5, requests=5)], ids=["queued", "refused"])
def test_the_controller_is_notified_once_when_requests_wait_without_ready_pods(waiting: BalancerSample) -> None:
    listener = Listener()
    hub = ObservationStore(listener)
    hub.receive(record(0), 0.0)
    listener.count()
    hub.receive(record(1, balancer=waiting), 1.0)
    assert listener.count() == 1
    hub.receive(record(2, balancer=waiting), 2.0)
    assert listener.count() == 0
    hub.receive(record(3, triton(at=3), balancer=waiting), 3.0)
    listener.count()
    hub.receive(record(4, balancer=waiting), 4.0)
    assert listener.count() == 1


def test_a_queue_before_a_ready_pod_is_no_news() -> None:
    listener = Listener()
    hub = ObservationStore(listener)
    hub.receive(record(0, triton()), 0.0)
    listener.count()
    hub.receive(record(1, triton(at=1), balancer=haproxy(40)), 1.0)
    assert listener.count() == 0


def test_a_model_without_reports_is_forgotten() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton()), 0.0)
    hub.receive(record(0, name="other"), EXPIRE_TIMEOUT_S + 31)
    assert list(hub.models()) == [("ns", "other")]


def test_a_model_can_be_forgotten() -> None:
    hub = ObservationStore()
    hub.receive(record(0), 0.0)
    hub.forget("ns", "m")
    hub.forget("ns", "m")
    assert hub.observe("ns", "m", 0.0) is None


def test_agents_without_end_do_not_fill_the_memory() -> None:
    hub = ObservationStore()
    for number in range(10 * MAX_AGENTS):
        hub.receive(record(0, agent=f"a-{number}"), number / 100)
    assert len(observation_of(hub, 3.2).balancers) == MAX_AGENTS


gauges = st.one_of(st.none(), st.integers(0, 1000))
samples = st.builds(
    lambda name, state, age, pending, gpu, rows: triton(
        name, state, at=-age, pending=pending, gpu=gpu, rows=rows, succeeded=rows
    ),
    st.sampled_from(["p-0", "p-1"]),
    st.sampled_from(["starting", "ready", "draining", "maintenance", "unreachable"]),
    st.floats(0, 15),
    gauges,
    st.one_of(st.none(), st.floats(0, 1)),
    gauges,
)
steps = st.lists(
    st.tuples(st.floats(0, 12), st.sampled_from(["a", "b", "c"]), st.lists(samples, max_size=3), gauges, gauges),
    max_size=25,
)


@given(steps)
def test_rates_are_never_negative_and_unknown_never_becomes_zero(
    history: list[tuple[float, str, list[PodSample], int | None, int | None]],
) -> None:
    hub, now = ObservationStore(), 0.0
    pending_known: set[str] = set()
    for elapsed, agent, pods, queued, refused in history:
        now += elapsed
        balancer = None if queued is None else haproxy(queued, refused=refused or 0, requests=refused or 0)
        moved = [PodSample(**{**vars(pod), "at": pod.at + now}) for pod in pods]
        sent = record(now, *moved, agent=agent)
        hub.receive(type(sent)(sent.namespace, sent.name, agent, sent.at, balancer, sent.pods), now)
        pending_known |= {pod.name for pod in moved if pod.pending is not None}
        observation = observation_of(hub, now)
        for b in observation.balancers:
            assert list(b.points) == sorted(b.points, key=lambda p: p.at)
            assert all(later.rejected >= p.rejected for p, later in zip(b.points, b.points[1:], strict=False))
        for pod in observation.pods:
            assert all(p.at <= now for p in pod.points)
            rows = [p.rows for p in pod.points if p.rows is not None]
            assert rows == sorted(rows)
            assert pod.name in pending_known or all(p.pending is None for p in pod.points)
        total = total_rate([b.points for b in observation.balancers], now, 15.0, lambda p: p.rejected)
        assert total is None or total >= 0


@given(
    st.permutations(range(6)),
    st.lists(st.tuples(st.integers(0, 99), st.floats(0.01, 0.9), st.integers(0, 99)), min_size=6, max_size=6),
)
def test_the_order_of_the_agents_records_does_not_matter(order: list[int], loads: list[tuple[int, float, int]]) -> None:
    records = [
        record(5, triton(at=5 - age, pending=pending), agent=f"a-{n}", balancer=haproxy(queued))
        for n, (queued, age, pending) in enumerate(loads)
    ]
    pictures = []
    for arrangement in (range(6), order):
        hub = ObservationStore()
        for n in arrangement:
            hub.receive(records[n], 5.0)
        observation = observation_of(hub, 5.0)
        (pod,) = observation.pods
        pictures.append((observation.balancers, pod.state, pod.points[-1].at))
    assert pictures[0] == pictures[1]


def test_listeners_receive_every_accepted_record() -> None:
    reported: list[tuple[str, str]] = []
    hub = ObservationStore(on_report=lambda namespace, name, _: reported.append((namespace, name)))
    hub.receive(record(5), 5.0)
    hub.receive(record(6, name="other"), 6.0)
    hub.receive(record(7), 7.0)
    assert reported == [("ns", "m"), ("ns", "other"), ("ns", "m")]

    assert not hub.receive(record(6.5), 7.5)
    assert len(reported) == 3


def test_a_record_is_in_the_observation_when_it_is_announced() -> None:
    queued: list[float] = []
    hub = ObservationStore(on_report=lambda *_: queued.append(observation_of(hub, 1.0).balancers[0].points[-1].queued))
    hub.receive(record(1, balancer=haproxy(7)), 1.0)

    assert queued == [7]


def test_a_record_confirms_its_agents_previous_one_a_bounded_number_of_times() -> None:
    confirmed: list[bool] = []
    hub = ObservationStore(on_report=lambda _namespace, _name, confirms: confirmed.append(confirms))
    for at in (0.0, 1.0, 1.2, 2.0, 2.3, 2.4, 2.5):
        hub.receive(record(at), at)
    hub.receive(record(2.6, agent="m-balancer-1"), 2.6)
    assert confirmed == [False, False, True, False, True, False, False, False]


def test_growth_counts_at_the_record_before_its_confirmation() -> None:
    hub = ObservationStore()
    for at, requests in ((0.0, 30), (1.0, 60), (2.0, 210), (2.2, 250)):
        hub.receive(record(at, balancer=haproxy(requests=requests)), at)
    points = observation_of(hub, 2.2).balancers[0].points
    assert [(point.at, point.requests) for point in points][-2:] == [(2.0, 30.0), (2.2, 180.0)]


def test_a_pod_sample_sent_twice_does_not_confirm_itself() -> None:
    hub = ObservationStore()
    hub.receive(record(0, triton(at=0.0, succeeded=10)), 0.0)
    hub.receive(record(1, triton(at=1.0, succeeded=900)), 1.0)
    hub.receive(record(1.2, triton(at=1.0, succeeded=900)), 1.2)
    assert observation_of(hub, 1.2).pods[0].points[-1].succeeded == 0
    hub.receive(record(2, triton(at=2.0, succeeded=20)), 2.0)
    hub.receive(record(3, triton(at=3.0, succeeded=30)), 3.0)
    assert observation_of(hub, 3.0).pods[0].points[-1].succeeded == 10
