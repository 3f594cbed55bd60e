"""From what is observed to what the planner is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.scaling.observations import BalancerObservation, BalancerPoint, Observation, PodObservation, PodPoint
from halcyon.scaling.planner.reading import PodReading, Reading
from halcyon.signals.clock import WallClock
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.planner_reading import (
    MAX_REPORT_DELAY_S,
    OBSERVATION_WINDOW_S,
    ReadingResult,
    SignalMemory,
    reading,
)
from tests.unit.signals.observation_builders import picture
from tests.unit.signals.records import haproxy, record

NOW = 1000.0
EPOCH = WallClock(1_763_700_000.0)


def balancer(
    name: str = "b-0",
    *,
    requests: float = 0.0,
    refused: float = 0.0,
    queued: float = 0.0,
    inflight: float = 0.0,
    age: float = 0.5,
    now: float = NOW,
) -> BalancerObservation:
    return BalancerObservation(name, (BalancerPoint(now - age, queued, inflight, requests, refused, 0.0, now - age),))


def triton(
    name: str = "p-0", state: Any = "ready", *, age: float = 0.5, now: float = NOW, batches: Any = None, **values: Any
) -> PodObservation:
    known = {"pending": 0.0, "gpu": 50.0, "succeeded": 0.0, "rows": 0.0, **values}
    return PodObservation(name, state, (PodPoint(now - age, **known),), batches=batches)  # fmt: skip


def kubernetes(*names: str, phase: Any = "ready") -> tuple[PodReading, ...]:
    return tuple(PodReading(name, phase, EPOCH.at(0.0), EPOCH.at(60.0)) for name in names)


def observation_of(*parts: BalancerObservation | PodObservation, at: float = NOW, **rest: Any) -> Observation:
    return Observation(
        at,
        tuple(part for part in parts if isinstance(part, PodObservation)),
        tuple(part for part in parts if isinstance(part, BalancerObservation)),
        **rest,
    )


def gather(
    observation: Observation, *, pods: Any = None, memory: SignalMemory | None = None, **rest: Any
) -> ReadingResult:
    listed = kubernetes(*(pod.name for pod in observation.pods)) if pods is None else pods
    of = picture(observation)
    return reading(of, replicas=3, pods=listed, epoch=EPOCH, memory=memory or SignalMemory(), **rest)


def reading_of(observation: Observation, **rest: Any) -> Reading:
    return gather(observation, **rest).reading


def test_all_agents_and_pods_become_one_reading() -> None:
    result = gather(
        observation_of(
            balancer(queued=3, inflight=10),
            balancer("b-1", queued=4, inflight=12, age=0.2),
            triton(pending=5.0, gpu=80.0),
            triton("p-1", pending=1.0, gpu=60.0),
        )
    )
    assert result.unknown == ()
    assert result.reading == Reading(
        at=EPOCH.at(NOW - 0.2),
        replicas=3,
        arrived=0.0,
        waiting=13.0,
        inflight=29.0,
        queued=7.0,
        gpu=140.0,
        batches=None,
        pods=kubernetes("p-0", "p-1"),
        rejected=0.0,
        concurrency=29.0,
    )


def test_arrivals_grow_with_each_balancer_and_do_not_jump_when_one_appears() -> None:
    result = gather(observation_of(balancer(requests=5000)))
    result = gather(observation_of(balancer(requests=5040), balancer("b-1", requests=1e6)), memory=result.memory)
    assert result.reading.arrived == 40
    result = gather(observation_of(balancer(requests=5040), balancer("b-1", requests=1e6 + 2)), memory=result.memory)
    assert result.reading.arrived == 42


def test_rejections_grow_with_each_balancer_and_are_unknown_during_a_silence() -> None:
    result = gather(observation_of(balancer(refused=70.0)))
    assert result.reading.rejected == 0, "what was refused before anybody looked is past"
    both = observation_of(balancer(refused=75.0), balancer("b-1", refused=1e6))
    result = gather(both, memory=result.memory)
    assert result.reading.rejected == 5
    assert gather(both, memory=result.memory).memory.rejected is result.memory.rejected, (
        "nothing new is made of nothing new"
    )
    assert (
        gather(observation_of(balancer(refused=80.0), silent=(("b-1", 14.0),)), memory=result.memory).reading.rejected
        is None
    )


def test_a_silent_balancer_with_an_existing_pod_makes_the_load_unknown() -> None:
    observation = observation_of(balancer(), triton(), silent=(("b-1", 14.0),))
    for balancers in (None, {"b-0", "b-1"}):
        result = gather(observation, balancers=balancers)
        assert (result.reading.arrived, result.reading.waiting, result.reading.inflight) == (None, None, None)
        assert result.reading.at == EPOCH.at(NOW - 0.5)
        assert "b-1 reported last 14 s ago" in result.unknown[0]
    assert reading_of(observation, balancers={"b-0"}).arrived == 0, "its pod is gone, and its queue with it"


@pytest.mark.parametrize(
    ("observation", "balancers", "why"),
    [
        (observation_of(), None, "no balancer agent has reported yet"),
        (observation_of(), set(), "no balancer agent has reported yet"),
        (observation_of(balancer()), {"b-0", "b-1"}, "b-1 has not reported yet"),
        (observation_of(balancer(), balancer("b-1", age=11.0)), {"b-0", "b-1"}, "HAProxy of b-1 does not respond"),
        (observation_of(silent=tuple((f"b-{n}", 20.0) for n in range(9))), None, "and 6 more"),
    ],
)
def test_a_silent_balancer_is_named(observation: Observation, balancers: Any, why: str) -> None:
    result = gather(observation, balancers=balancers)
    assert result.reading.arrived is None
    assert why in result.unknown[0]


def test_arrivals_during_a_balancers_silence_count_when_it_is_back() -> None:
    result = gather(observation_of(balancer(requests=100), balancer("b-1", requests=100)))
    result = gather(observation_of(balancer(requests=150), silent=(("b-1", 11.0),)), memory=result.memory)
    assert result.reading.arrived is None
    result = gather(observation_of(balancer(requests=200), balancer("b-1", requests=200)), memory=result.memory)
    assert result.reading.arrived == 200


def test_a_balancer_that_counted_unseen_and_unexpected_does_not_jump() -> None:
    result = gather(observation_of(balancer(requests=100), balancer("b-1", requests=100)), balancers={"b-0", "b-1"})
    result = gather(
        observation_of(balancer(requests=110), silent=(("b-1", 60.0),)), memory=result.memory, balancers={"b-0"}
    )
    result = gather(
        observation_of(balancer(requests=120), balancer("b-1", requests=9000)), memory=result.memory, balancers={"b-0"}
    )
    assert result.reading.arrived == 20


def balancer_reports(name: str, *counts: tuple[float, float]) -> BalancerObservation:
    """(time, count) of each record."""
    times = [counts[0][0], *(at for at, _ in counts)]  # of when its counts are: the record before
    points = (BalancerPoint(at, 0.0, 0.0, count, 0.0, 0.0, of) for (at, count), of in zip(counts, times, strict=False))
    return BalancerObservation(name, tuple(points))


def test_the_counter_of_a_record_is_that_of_the_record_before() -> None:
    result = gather(observation_of(balancer_reports("b-0", (NOW - 3, 0), (NOW - 2, 100), (NOW - 1, 200))))
    assert result.reading.at == EPOCH.at(NOW - 2)
    result = gather(
        observation_of(balancer_reports("b-0", (NOW - 2, 100), (NOW - 1, 200), (NOW, 300)), at=NOW + 0.5),
        memory=result.memory,
    )
    assert (result.reading.at, result.reading.arrived) == (EPOCH.at(NOW - 1), 100.0)


def test_the_slowest_busy_balancer_sets_the_time_and_others_follow() -> None:
    slow, quick = [(NOW - 6, 0.0), (NOW - 3, 300.0)], [(NOW - 3.5, 50.0), (NOW - 2.5, 150.0), (NOW - 1.5, 250.0)]
    result = gather(observation_of(balancer_reports("slow", *slow), balancer_reports("quick", *quick)))
    assert result.reading.at == EPOCH.at(NOW - 6)
    result = gather(
        observation_of(
            balancer_reports("slow", *slow[1:], (NOW, 600.0)), balancer_reports("quick", *quick, (NOW - 0.5, 350.0))
        ),
        memory=result.memory,
    )
    assert (result.reading.at, result.reading.arrived) == (EPOCH.at(NOW - 3), 300.0 + 50.0)


def test_a_balancer_that_counts_nothing_delays_no_other() -> None:
    idle = balancer_reports("idle", (NOW - 9, 5.0), (NOW - 4, 5.0))
    busy = balancer_reports("busy", (NOW - 2, 100.0), (NOW - 1, 200.0), (NOW, 300.0))
    assert reading_of(observation_of(idle, busy)).at == EPOCH.at(NOW - 1)
    assert reading_of(observation_of(idle)).at == EPOCH.at(NOW - 4 - MAX_REPORT_DELAY_S)


def test_the_first_record_after_a_silence_is_not_enough() -> None:
    before = gather(observation_of(balancer_reports("b-0", (NOW - 2, 100.0), (NOW - 1, 200.0), (NOW, 300.0))))
    back = observation_of(balancer_reports("b-0", (NOW, 300.0), (NOW + 30, 400.0)), at=NOW + 30.5)
    result = gather(back, memory=before.memory)
    assert result.reading.arrived is None
    assert "b-0 has just started to report again" in result.unknown[0]
    again = observation_of(balancer_reports("b-0", (NOW, 300.0), (NOW + 30, 400.0), (NOW + 31, 3300.0)), at=NOW + 31.5)
    result = gather(again, memory=result.memory)
    assert (result.reading.at, result.reading.arrived) == (EPOCH.at(NOW + 30), 3000.0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 4.0), st.integers(0, 50)), min_size=1, max_size=40))
def test_neither_the_time_nor_the_merged_count_ever_falls(records: list[tuple[str, float, int]]) -> None:
    hub, memory, now = ObservationStore(), SignalMemory(), 0.0
    counts = dict.fromkeys("abc", 1000)
    arrived, at = 0.0, 0.0
    for agent, pause_s, more in records:
        now += pause_s
        counts[agent] += more
        hub.receive(record(now, agent=agent, balancer=haproxy(requests=counts[agent])), now)
        observation = hub.observe("ns", "m", now, window_s=OBSERVATION_WINDOW_S)
        assert observation is not None
        result = gather(observation, pods=(), memory=memory)
        memory = result.memory
        if result.reading.arrived is not None:
            assert result.reading.at is not None
            assert result.reading.arrived >= arrived
            assert result.reading.at >= at
            arrived, at = result.reading.arrived, result.reading.at
    assert arrived <= sum(counts.values()) - 3000


@given(st.lists(st.tuples(st.floats(0.1, 1.4), st.floats(0.0, 2.0)), min_size=3, max_size=60))
def test_a_steady_load_is_steady_for_any_timing_of_its_records(
    timings: list[tuple[float, float]],
) -> None:
    hub, memory, created_at, now, begin = ObservationStore(), SignalMemory(), 0.0, 0.0, None
    for number, (pause_s, late_s) in enumerate([(0.5, 0.0), *timings]):
        # Two of ten are quick, so that the second is behind no late one: there is one in every half minute.
        is_quick = number % 10 in {9, 0}
        created_at += 1.4 if is_quick else pause_s
        now = max(now, created_at + (0.0 if is_quick else late_s))
        hub.receive(record(created_at, agent="b-0", balancer=haproxy(requests=round(1000 * created_at))), now)
        picture_now = hub.snapshot("ns", "m", now)
        assert picture_now is not None
        result = reading(picture_now, replicas=1, pods=(), epoch=EPOCH, memory=memory)
        memory = result.memory
        if result.reading.arrived and result.reading.at is not None:
            begin = begin or (result.reading.at, result.reading.arrived)
            expected = 1000 * (result.reading.at - begin[0])
            # Two counts are whole numbers, and times lose a microsecond to the epoch's size.
            assert result.reading.arrived - begin[1] == pytest.approx(expected, abs=2.0)


def test_one_pod_whose_backend_is_dead_is_broken_and_left_out() -> None:
    reading = reading_of(
        observation_of(balancer(), triton(pending=4.0, gpu=50.0), triton("p-1", "maintenance", pending=90.0, gpu=100.0))
    )
    assert [pod.phase for pod in reading.pods] == ["ready", "broken"]
    assert (reading.waiting, reading.gpu) == (4.0, 50.0)


def test_a_pod_that_is_not_ready_for_kubernetes_stays_what_it_is() -> None:
    observation = observation_of(balancer(), triton("p-0", "maintenance"))
    for phase in ("starting", "unschedulable", "draining"):
        reading = reading_of(observation, pods=kubernetes("p-0", phase=phase))
        assert reading.pods[0].phase == phase
        assert (reading.waiting, reading.gpu) == (0.0, None)


def test_unreadable_pods_count_as_the_others_until_they_are_most() -> None:
    blank = {"pending": None, "gpu": None}
    some = reading_of(
        observation_of(
            balancer(), triton(pending=4.0), triton("p-1", pending=6.0), triton("p-2", "unreachable", **blank)
        )
    )
    assert (some.waiting, some.gpu) == (15.0, 150.0)
    result = gather(observation_of(balancer(), triton(), triton("p-1", **blank), triton("p-2", age=11.0)))
    assert (result.reading.waiting, result.reading.gpu, result.reading.arrived) == (None, None, 0.0)
    assert result.unknown == ("most ready pods don't report their queue: p-0, p-1, p-2",)
    assert reading_of(observation_of(balancer()), pods=kubernetes("p-0")).waiting is None, "no agent knows the pod yet"


def test_no_ready_pod_is_no_obstacle_to_knowing_the_load() -> None:
    reading = reading_of(observation_of(balancer(queued=7)), pods=())
    assert (reading.waiting, reading.inflight, reading.gpu) == (7.0, 7.0, None)


def test_batches_are_summed_over_pods_and_never_fall() -> None:
    result = gather(
        observation_of(
            balancer(), triton(batches=((1, 3, 89_000),)), triton("p-1", batches=((1, 3, 60_000), (8, 1, 10_000)))
        )
    )
    assert result.reading.batches == {1: (3, pytest.approx(0.089)), 8: (1, pytest.approx(0.01))}
    result = gather(
        observation_of(balancer(), triton("p-1", batches=((1, 4, 80_000), (8, 1, 10_000)))), memory=result.memory
    )
    assert result.reading.batches == {1: (4, pytest.approx(0.109)), 8: (1, pytest.approx(0.01))}
    assert set(result.memory.batches.last) == {"p-1"}


def test_rows_per_request_are_those_of_requests_lately() -> None:
    result = gather(observation_of(balancer(), triton(succeeded=500.0, rows=500.0)))
    assert result.reading.rows_per_request == 1.0
    result = gather(observation_of(balancer(), triton(succeeded=600.0, rows=800.0)), memory=result.memory)
    assert result.reading.rows_per_request == pytest.approx(3.0)
    result = gather(observation_of(balancer(), triton(succeeded=None, rows=None)), memory=result.memory)
    assert result.reading.rows_per_request == pytest.approx(3.0)
    result = gather(observation_of(balancer(), triton(succeeded=0.0, rows=0.0)), memory=result.memory)
    for n in range(1, 101):
        result = gather(observation_of(balancer(), triton(succeeded=100.0 * n, rows=500.0 * n)), memory=result.memory)
    assert result.reading.rows_per_request == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("hits", [0.5, 0.9, 0.99])
def test_rows_per_request_are_below_one_with_cached_responses(hits: float) -> None:
    """Triton counts a request that its cache answers as a success, and executes no row for it."""
    memory = SignalMemory()
    for n in range(1, 61):
        pod = triton(succeeded=100.0 * n, rows=round(100.0 * n * (1 - hits)))
        result = gather(observation_of(balancer(), pod), memory=memory)
        memory = result.memory
    assert result.reading.rows_per_request == pytest.approx(1 - hits, rel=0.1)


def test_a_pod_that_reports_nonsense_does_not_change_the_rows() -> None:
    memory = SignalMemory()
    for n in range(10):
        good = [triton(f"p-{i}", succeeded=100.0 * n, rows=200.0 * n) for i in range(3)]
        result = gather(
            observation_of(balancer(), *good, triton("p-9", succeeded=100.0 * n, rows=9000.0 * n)), memory=memory
        )
        memory = result.memory
        assert result.reading.rows_per_request == (2.0 if n else 1.0)


def test_lasting_changes_of_rows_are_believed_after_a_few_readings() -> None:
    memory, rows, seen_rows = SignalMemory(), 0.0, []
    for n in range(20):
        rows += 200.0 if n < 10 else 1600.0
        result = gather(observation_of(balancer(), triton(succeeded=100.0 * n, rows=rows)), memory=memory)
        memory = result.memory
        seen_rows.append(result.reading.rows_per_request)
    assert seen_rows[1:14] == [2.0] * 13
    assert seen_rows[14:] == [16.0] * 6


def test_small_changes_of_rows_are_not_reported() -> None:
    result = gather(observation_of(balancer(), triton()))
    reported_rows = set()
    for n in range(1, 50):
        rows = 200.0 * n + 3 * (n % 3)
        result = gather(observation_of(balancer(), triton(succeeded=100.0 * n, rows=rows)), memory=result.memory)
        reported_rows.add(result.reading.rows_per_request)
    assert len(reported_rows) == 1


def test_the_same_observation_makes_the_same_reading() -> None:
    observation = observation_of(balancer(requests=9), triton(batches=((1, 3, 5),)), silent=(("b-9", 30.0),))
    assert gather(observation) == gather(observation)


def test_times_are_of_the_epoch_and_survive_small_clock_adjustments() -> None:
    epoch = WallClock.of(monotonic_s=50.0, wall_s=1_763_700_050.0)
    assert epoch.at(60.0) == 1_763_700_060.0
    assert epoch.checked(monotonic_s=60.0, wall_s=1_763_700_060.9) is epoch
    for off in (-30.0, 5.0, 86_400.0):
        stepped = epoch.checked(monotonic_s=60.0, wall_s=1_763_700_060.0 + off)
        assert stepped.at(60.0) == 1_763_700_060.0 + off
    assert reading(
        picture(observation_of(balancer(), at=NOW)), replicas=1, pods=(), epoch=stepped, memory=SignalMemory()
    ).reading.at == stepped.at(NOW - 0.5)


@pytest.mark.parametrize(
    ("shares", "known"), [((0.9, 0.4), 0.4), ((0.9, None), None), ((None, None), None)], ids=["all", "some", "none"]
)
def test_the_room_of_engines_is_known_if_all_report_it(shares: tuple[float | None, ...], known: float | None) -> None:
    seen = picture(observation_of(balancer("b"), triton("a-0"), triton("a-1")))
    pods = {name: pod._replace(engine_used=share) for (name, pod), share in zip(seen.pods.items(), shares, strict=True)}
    result = reading(
        seen._replace(pods=pods),
        replicas=2,
        pods=kubernetes("a-0", "a-1"),
        epoch=WallClock(0.0),
        memory=SignalMemory(),
    )
    assert result.reading.engine_used == known
