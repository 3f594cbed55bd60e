"""The busy share of a pod's instances, from what Triton says of its batches."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import MAX_SIZES, Batches, BatchStats
from halcyon.scaling.observations import Observation, PodObservation, PodPoint, Value
from halcyon.signals.busy_fraction import MAX_AGE_S, MAX_GAP_S, MIN_SPACING_S, WINDOW_S, BusyMemory
from halcyon.signals.observation_store import ObservationStore
from tests.unit.signals.records import EPOCH, record, triton


def observation_at(
    at: float, busy_s: float, *, executions: float | None = None, rows: Iterable[int] = (4,)
) -> Observation:
    """One pod `m` whose batches have taken so long after a warm-up of 1 s; executions are not known where they are left out."""
    sizes = tuple(rows)
    each_us = round((1 + busy_s) * 1e6) // max(len(sizes), 1)
    batches = tuple((size, 1, each_us) for size in sizes)
    points = (PodPoint(at - 1.0, executions=executions), PodPoint(at, executions=executions))
    return Observation(at, (PodObservation("m", "ready", points, batches=batches),))


def after(*observations: Observation) -> BusyMemory:
    """After these reads, and one long before: of what is seen first it isn't known when it was read."""
    memory = BusyMemory().with_observation(observation_at(10.0, 0.0, rows=()))
    for observation in observations:
        memory = memory.with_observation(observation)
    return memory


def percent(memory: BusyMemory, now: float, *, instances: int = 1, pod: str = "m") -> float | None:
    utilization = memory.utilization(pod, now=now, instances=instances)
    return None if utilization is None else utilization.value


def test_the_busy_fraction_is_the_share_of_time_that_batches_took() -> None:
    memory = after(observation_at(100, 50.0), observation_at(105, 53.0))

    assert memory.utilization("m", now=106, instances=1) == Value(pytest.approx(60.0), 105)


def test_the_busy_fraction_of_several_instances_is_the_mean() -> None:
    memory = after(observation_at(100, 0.0), observation_at(105, 5.0))

    assert [percent(memory, 105, instances=count) for count in (1, 2, 4)] == [100.0, 50.0, 25.0]


def test_the_busy_fraction_ends_at_a_hundred_for_undeclared_instances() -> None:
    assert percent(after(observation_at(100, 0.0), observation_at(105, 15.0)), 105) == 100.0


def test_a_single_read_or_two_close_ones_give_no_busy_fraction() -> None:
    assert percent(after(observation_at(100, 50.0)), 100) is None
    assert percent(after(observation_at(100, 50.0), observation_at(101, 51.0)), 101) is None


def test_a_first_sample_may_be_old_and_counts_as_no_read() -> None:
    memory = BusyMemory().with_observation(observation_at(100, 5.0)).with_observation(observation_at(104, 9.0))

    assert percent(memory, 104) is None
    assert percent(memory.with_observation(observation_at(109, 10.0)), 109) == pytest.approx(20.0)


def test_an_unseen_pod_is_unknown() -> None:
    assert percent(BusyMemory(), 100) is None


@pytest.mark.parametrize(("age_s", "known"), [(0.0, True), (MAX_AGE_S, True), (MAX_AGE_S + 0.1, False)])
def test_the_busy_fraction_is_known_for_a_while_after_the_read(age_s: float, *, known: bool) -> None:
    assert (percent(after(observation_at(100, 0.0), observation_at(105, 2.0)), 105 + age_s) is not None) is known


def test_reads_of_the_window_are_taken_together_and_older_ones_are_not() -> None:
    memory = after(
        observation_at(100, 0.0), observation_at(105, 5.0), observation_at(110, 5.5), observation_at(115, 7.0)
    )

    assert percent(memory, 115) == pytest.approx(20.0)
    assert WINDOW_S == 10


def test_a_fallen_counter_starts_afresh() -> None:
    fell = after(observation_at(100, 50.0), observation_at(105, 53.0), observation_at(110, 1.0))

    assert percent(fell, 110) is None
    assert percent(fell.with_observation(observation_at(115, 2.0)), 115) == pytest.approx(20.0)


def test_a_size_that_was_not_run_before_counts_from_its_first_batch() -> None:
    assert percent(after(observation_at(100, 2.0), observation_at(105, 4.0, rows=(2, 4))), 105) == pytest.approx(40.0)


def test_a_vanished_size_is_another_container_even_if_it_took_longer() -> None:
    assert percent(after(observation_at(100, 2.0, rows=(2, 4)), observation_at(105, 4.0, rows=(4,))), 105) is None


def test_sizes_new_in_a_full_table_are_no_present_work() -> None:
    full, other = range(1, MAX_SIZES + 1), range(2, MAX_SIZES + 2)

    assert percent(
        after(observation_at(100, 64.0, rows=full), observation_at(105, 66.0, rows=full)), 105
    ) == pytest.approx(40.0, abs=0.1)
    assert percent(after(observation_at(100, 64.0, rows=full), observation_at(105, 66.0, rows=other)), 105) is None


def test_sizes_beyond_the_report_count_by_the_time_of_all_sizes() -> None:
    def at(second: float, first: int, spent_s: float) -> Observation:
        batches = tuple((rows, 1, 1000) for rows in range(first, first + MAX_SIZES))
        points = (PodPoint(second - 1.0), PodPoint(second))
        return Observation(
            second, (PodObservation("m", "ready", points, batches=batches, spent_us=round(spent_s * 1e6)),)
        )

    memory = BusyMemory()
    for look in range(5):
        memory = memory.with_observation(at(100 + 5 * look, 1 + 7 * look, 50 + 4.5 * look))

    assert percent(memory, 120) == pytest.approx(90.0)


def test_a_pod_that_runs_nothing_is_idle_and_not_unknown() -> None:
    memory = after(*(observation_at(at, 7.0, executions=3) for at in range(100, 200)))

    utilization = memory.utilization("m", now=200, instances=1)
    assert utilization is not None
    assert utilization.value == 0
    assert utilization.at >= 197


def test_a_pod_that_never_ran_anything_is_idle_too() -> None:
    assert percent(after(*(observation_at(at, 0.0, executions=0, rows=()) for at in range(100, 120))), 120) == 0


def test_a_pod_that_comes_to_rest_is_never_unknown_on_the_way() -> None:
    """Agents speak every 5 s then, and reads that bring nothing new are not seen."""
    memory = after(observation_at(100, 0.0, executions=0), observation_at(105, 5.0, executions=5))
    percents = []
    for step in range(1, 9):
        memory = memory.with_observation(observation_at(105 + 5 * step, 5.0, executions=5))
        percents += [percent(memory, 105 + 5 * step + second) for second in range(5)]

    known = [value for value in percents if value is not None]
    assert len(known) == len(percents)
    assert known == sorted(known, reverse=True)
    assert (known[0], known[-1]) == (100.0, 0.0)


@pytest.mark.parametrize("known", [False, True])
def test_stalled_counters_with_unknown_or_growing_executions_are_no_idleness(*, known: bool) -> None:
    memory = after(observation_at(100, 0.0), observation_at(105, 5.0))
    for at in range(106, 130):
        memory = memory.with_observation(observation_at(at, 5.0, executions=at if known else None))

    assert percent(memory, 105 + MAX_AGE_S) == 100.0
    assert percent(memory, 129) is None


def test_work_during_a_long_silence_says_nothing_of_now() -> None:
    assert percent(after(observation_at(100, 0.0), observation_at(101 + MAX_GAP_S, 50.0)), 101 + MAX_GAP_S) is None


def test_growth_over_a_long_silence_is_not_work_of_the_last_seconds() -> None:
    memory = after(observation_at(100, 0.0), observation_at(105, 2.0))
    for at in range(106, 180):
        memory = memory.with_observation(observation_at(at, 2.0, executions=at))
    memory = memory.with_observation(observation_at(180, 60.0, executions=180))

    assert percent(memory, 180) is None
    assert percent(memory.with_observation(observation_at(185, 61.0, executions=185)), 185) == pytest.approx(20.0)


def test_pods_that_are_gone_or_report_no_batches_are_forgotten() -> None:
    memory = after(observation_at(100, 0.0), observation_at(105, 5.0))

    assert memory.with_observation(Observation(106)).pods == {}
    assert memory.with_observation(Observation(106, (PodObservation("m", "ready"),))).pods == {}


def test_a_second_sample_at_the_same_moment_costs_nothing() -> None:
    memory = after(observation_at(100, 0.0))

    assert memory.with_observation(observation_at(100 + MIN_SPACING_S / 2, 1.0)) is memory


def test_two_agents_with_rhythms_of_their_own_make_one_value() -> None:
    """Through the hub: each of them reads the pod every 5 s, 1 s apart, and repeats what it has read."""
    hub, memory, percents = ObservationStore(), BusyMemory(), []
    reported: dict[str, Batches] = {}
    for second in range(1, 61):
        now = float(second)
        for agent, phase in (("a", 0), ("b", 1)):
            if second % 5 == phase:
                reported[agent] = ((8, second, second * 700_000),)
            batches = BatchStats(EPOCH + second - (second - phase) % 5, reported[agent]) if agent in reported else None
            sample = triton(at=now, gpu=None, executions=second, batches=batches)
            hub.receive(record(now, sample, agent=agent), now)
        observation = hub.observe("ns", "m", now, window_s=10)
        assert observation is not None
        memory = memory.with_observation(observation)
        percents.append(percent(memory, now, pod="m-a-0"))

    assert None not in percents[15:]
    assert all(value == pytest.approx(70.0, rel=0.25) for value in percents[15:])


@given(
    st.lists(
        st.tuples(st.floats(0.1, 30.0), st.floats(0.0, 30.0), st.one_of(st.none(), st.integers(0, 5))), max_size=30
    ),
    st.integers(1, 8),
)
def test_the_busy_fraction_is_a_percentage_of_past_time_for_any_reads(
    steps: list[tuple[float, float, int | None]], instances: int
) -> None:
    memory, now = BusyMemory(), 100.0
    for passed_s, busy_s, executions in steps:
        now += passed_s
        memory = memory.with_observation(observation_at(now, busy_s, executions=executions))
        utilization = memory.utilization("m", now=now, instances=instances)
        if utilization is not None:
            assert 0 <= utilization.value <= 100
            assert now - MAX_AGE_S <= utilization.at <= now
        assert all(len(pod.reads) <= 2 + (WINDOW_S + MAX_GAP_S) / MIN_SPACING_S for pod in memory.pods.values())
