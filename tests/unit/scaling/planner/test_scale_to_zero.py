"""With minReplicas 0: when nobody is left, and what wakes the first replica."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halcyon.scaling.planner.forecast.arrival_rate import ArrivalRate
from halcyon.scaling.planner.outputs import Plan, PlannerMemory
from halcyon.scaling.planner.plan import plan
from halcyon.scaling.planner.reading import Objectives, OpenWindow, PodReading, Reading
from halcyon.scaling.planner.scale_to_zero import IdleTimeout, extended_idle_reason
from tests.drawn import draws

WEIGHT_BYTES = 55_000
"""Models are idle for simulated hours."""

IDLE = Objectives(low=0, high=10, max_batch=8, idle_after_s=300.0, start_s=30.0)
T0 = 1_763_700_000.0


class Model:
    """A model whose readings come every second; the count that is planned is in force at once."""

    def __init__(self, objectives: Objectives = IDLE, *, replicas: int = 1, learnt: bool = False) -> None:
        self.objectives, self.replicas, self.learnt = objectives, replicas, learnt
        self.now, self.arrived = T0, 0.0
        self.memory = PlannerMemory()

    def look(self, *, arrived: float = 0.0, inflight: float | None = 0.0, waiting: float | None = 0.0) -> Plan:
        """A second later, after so many more requests."""
        self.now += 1
        self.arrived += arrived
        batches = {8: (100, 8.0)} if self.learnt else None
        pods = tuple(PodReading(f"p-{n}", "ready", T0 - 7200, T0 - 7170) for n in range(self.replicas))
        reading = Reading(self.now, self.replicas, self.arrived, waiting, inflight, batches=batches, pods=pods)
        new_plan = plan(self.now, self.objectives, reading, self.memory)
        self.memory, self.replicas = new_plan.memory, new_plan.count
        return new_plan

    def quiet(self, seconds: int) -> Plan:
        """Nobody asks for so long."""
        for _ in range(seconds - 1):
            self.look()
        return self.look()


def slow_start(objectives: Objectives, *, start_s: float, seconds: int, waits_s: int = 60) -> list[Plan]:
    """Return the plans, one a second, of a model at zero with one request, whose client gives up after `waits_s`."""
    memory, count, plans = PlannerMemory(), 0, []
    created_at = T0
    for second in range(seconds):
        now = T0 + second
        created_at = created_at if count else now
        ready_at = created_at + start_s
        pods = (PodReading("p", "ready" if now >= ready_at else "starting", created_at, ready_at),) if count else ()
        held = 1.0 if 10 <= second < 10 + waits_s else 0.0
        reading = Reading(
            now, count, float(second >= 10), held, held, pods=pods, rejected=float(second >= 10 + waits_s)
        )
        result = plan(now, objectives, reading, memory)
        memory, count = result.memory, result.count
        plans.append(result)
    return plans


def test_a_start_that_takes_longer_than_the_idle_time_is_not_wasted() -> None:
    plans = slow_start(replace(IDLE, start_s=60.0), start_s=480.0, seconds=900)
    counts = [plan.count for plan in plans]

    # The pod is ready after 490 s. The client has the idle time from then on to try again.
    assert counts[11:788] == [1] * 777
    assert counts[-1] == 0
    assert "and ready for 30" in next(plan for plan in plans[400:] if not plan.count).describe()


def test_a_scale_to_zero_that_is_only_recommended_teaches_nothing() -> None:
    memory, arrived = PlannerMemory(), 0.0
    for second in range(3000):
        # A request every ten minutes; nobody writes the replicas.
        now, arrived = T0 + second, arrived + (second % 600 == 0)
        pods = (PodReading("p", "ready", T0 - 99, T0 - 70),)
        reading = Reading(now, 1, arrived, 0.0, 0.0, batches={8: (100, 8.0)}, pods=pods)
        new_plan = plan(now, IDLE, reading, memory)
        memory = new_plan.memory

    assert new_plan.count == 0
    assert memory.zero.patience_s == 0.0


def test_a_pod_that_never_starts_is_given_up_after_the_startup_timeout() -> None:
    counts = [plan.count for plan in slow_start(replace(IDLE, startup_timeout_s=400.0), start_s=9e9, seconds=500)]

    assert counts[11:405] == [1] * 394
    assert counts[415:] == [0] * 85


def limits(plan: Plan) -> list[str]:
    return [limit.name for limit in plan.limits]


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("idle_after_s", [10.0, 60.0, 300.0])
def test_a_model_without_requests_is_at_zero_exactly_after_the_idle_time(learnt: bool, idle_after_s: float) -> None:
    model = Model(replace(IDLE, idle_after_s=idle_after_s), learnt=learnt)

    assert model.quiet(int(idle_after_s)).count == 1
    plan = model.quiet(2)
    assert (plan.count, limits(plan)) == (0, ["idle"])


@pytest.mark.parametrize("learnt", [False, True])
def test_a_model_with_one_request_is_at_zero_the_idle_time_later(learnt: bool) -> None:
    model = Model(learnt=learnt)
    model.look()
    model.look(arrived=1, inflight=1)

    assert model.quiet(299).count == 1
    plan = model.quiet(2)
    assert (plan.count, limits(plan)) == (0, ["idle"])


@pytest.mark.parametrize("learnt", [False, True])
def test_replicas_stay_above_zero_while_a_request_is_in_the_system(learnt: bool) -> None:
    model = Model(learnt=learnt)
    model.look(arrived=1, inflight=1)
    for _ in range(400):
        # One slow request; that it doesn't move is no fault.
        assert model.look(inflight=1).count == 1


@pytest.mark.parametrize("learnt", [False, True])
def test_a_model_created_at_zero_stays_there_until_the_first_request(learnt: bool) -> None:
    model = Model(replicas=0, learnt=learnt)

    plan = model.quiet(20)
    assert (plan.count, limits(plan)) == (0, ["idle"])
    assert plan.describe().endswith("no request has arrived")
    assert model.look(inflight=1, waiting=1).count == 1


def test_the_first_reading_of_a_model_at_zero_may_wake_it() -> None:
    assert Model(replicas=0).look(inflight=3, waiting=3).count == 1


@pytest.mark.parametrize("learnt", [False, True])
def test_requests_that_are_refused_wake_a_model_although_none_waits(learnt: bool) -> None:
    model = Model(replicas=0, learnt=learnt)
    model.quiet(20)

    assert model.look(arrived=1).count >= 1


def test_a_wake_up_without_known_capacity_wants_one_replica_and_says_why() -> None:
    model = Model(replicas=0)
    model.quiet(5)
    plan = model.look(arrived=500, inflight=500, waiting=500)

    assert (plan.count, limits(plan)) == (1, ["learning"])
    assert "requests have arrived, and no replica runs" in plan.describe()


def test_a_model_without_known_capacity_keeps_its_replicas_under_load() -> None:
    model = Model(replicas=4)
    for _ in range(100):
        plan = model.look(arrived=100, inflight=10)
    assert (plan.count, limits(plan)) == (4, ["answers"])
    assert "no pod has been full yet" in plan.describe()


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_blind_planner_keeps_its_replicas(learnt: bool, count: int) -> None:
    model = Model(replicas=count, learnt=learnt)
    for _ in range(100):
        plan = model.look(inflight=None, waiting=None)
        assert (plan.count, limits(plan)) == (count, ["unknown"])


@pytest.mark.parametrize("learnt", [False, True])
def test_a_silence_of_the_meters_is_no_silence_of_the_users(learnt: bool) -> None:
    model = Model(learnt=learnt)
    model.look(arrived=5)
    for _ in range(400):
        assert model.look(inflight=None).count == 1


def test_a_schedule_keeps_replicas_without_requests_until_it_ends() -> None:
    model = Model(replace(IDLE, idle_after_s=20.0, windows=(OpenWindow("day", low=3),)), replicas=3)
    model.look(arrived=1)
    assert model.quiet(100).count == 3

    model.objectives = replace(IDLE, idle_after_s=20.0)
    assert model.look().count == 0


def test_a_schedule_that_opens_raises_replicas_of_unknown_capacity() -> None:
    model = Model(replace(IDLE, low=1, idle_after_s=None), replicas=1)
    model.quiet(5)
    model.objectives = replace(model.objectives, windows=(OpenWindow("day", low=3, high=6),))

    assert model.look().count == 3


@example(story=[(0, 0, 1), (0, 1, 1), (0, 0, 18)], learnt=False, replicas=0, low=0)
@example(story=[(10, 1, 2), (0, 0, 19)], learnt=False, replicas=0, low=0)
@draws(2.5)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(1, 25)), max_size=6),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0, 1]),
)
def test_zero_is_for_the_idle_only(story: list[tuple[int, int, int]], learnt: bool, replicas: int, low: int) -> None:
    objectives = replace(IDLE, low=low, idle_after_s=20.0 if low == 0 else None)
    model = Model(objectives, replicas=max(replicas, low), learnt=learnt)
    model.look()
    requested_at = model.now
    for arrived, inflight, seconds in story:
        for second in range(seconds):
            more = arrived if second == 0 else 0
            was = model.replicas
            plan = model.look(arrived=more, inflight=inflight, waiting=0)
            requested_at = model.now if more or inflight else requested_at
            assert low <= plan.count <= 10
            if plan.count == 0 and was > 0:
                assert model.now - requested_at >= 20
            if inflight:
                assert plan.count >= 1


@pytest.mark.parametrize("learnt", [False, True])
def test_idleness_begins_after_a_long_request_in_which_no_signal_moves(learnt: bool) -> None:
    model = Model(replace(IDLE, idle_after_s=20.0), replicas=1, learnt=learnt)
    model.look()
    model.look(arrived=1, inflight=1)
    for _ in range(60):
        assert model.look(inflight=1).count == 1

    assert model.quiet(19).count == 1
    assert model.quiet(3).count == 0


def test_requests_that_wait_wake_the_first_replica_at_the_first_reading() -> None:
    assert Model(replicas=0, learnt=True).look(inflight=3, waiting=3).count == 1


class Visited(Model):
    """A model that pods come to 30 s after they were asked for; while it is visited, two requests come a second."""

    def visit(self, seconds: int) -> None:
        for _ in range(seconds):
            self.look(arrived=2, inflight=1)

    def zero_after(self) -> int:
        """Seconds of quiet until there is no replica."""
        for second in range(1, 4000):
            if self.look().count == 0:
                return second
        raise AssertionError("it never went to zero")


def visited() -> Visited:
    model = Visited(replace(IDLE, idle_after_s=60.0), learnt=True)
    model.visit(120)
    assert model.zero_after() == pytest.approx(60, abs=1)
    return model


def test_an_early_return_lengthens_the_next_idle_time() -> None:
    model = visited()
    model.quiet(10)
    model.visit(120)
    # A start of 30 s, for 10 s at zero: what would have been enough was 70 s, and half of it comes on top.
    waited = model.zero_after()
    assert waited == pytest.approx(105, abs=3)


def test_the_plan_explains_a_longer_idle_time() -> None:
    model = visited()
    model.quiet(10)
    model.visit(120)
    plan = model.quiet(80)
    assert plan.count >= 1
    assert limits(plan) == ["hold"]
    assert "idleTimeout is 60 s; the last start cost more GPU time than zero replicas had saved" in plan.describe()


def test_a_longer_idle_time_names_how_long_the_pod_is_ready() -> None:
    pods = (PodReading("p", "ready", T0 - 900, T0 - 400),)
    arrivals = ArrivalRate(last_at=T0 - 900, since=T0 - 9000)
    reading = Reading(T0, 1, 5.0, 0.0, 0.0, pods=pods)
    reason = extended_idle_reason(T0, IDLE, reading, arrivals, IdleTimeout(600.0))
    assert reason is not None
    assert reason.startswith("no request for 900 s and ready for 400 s, idleTimeout is 300 s; ")
    assert reason.endswith("so the next scale to zero is after 600 s")


def test_a_late_return_changes_nothing() -> None:
    model = visited()
    for _ in range(3):
        model.quiet(600)
        model.visit(120)
        assert model.zero_after() == pytest.approx(60, abs=1)


def test_calm_brings_the_wait_back_to_idle_after() -> None:
    model = visited()
    model.quiet(10)
    model.visit(120)
    model.zero_after()
    waits = []
    for _ in range(3):
        model.quiet(3600)
        model.visit(120)
        waits.append(model.zero_after())
    assert waits[-1] == pytest.approx(60, abs=1)


def test_the_wait_has_an_end() -> None:
    zero = IdleTimeout()
    for _ in range(20):
        wait = zero.wait_s(60.0)
        zero = zero.with_count(wait, 3, 0, idle_after_s=60.0, start_s=600.0)
        zero = zero.with_count(wait + 1, 0, 3, idle_after_s=60.0, start_s=600.0)
        zero = zero.with_count(wait + 700, 3, 3, idle_after_s=60.0, start_s=600.0)
    assert zero.wait_s(60.0) == 1800.0
    assert zero.wait_s(7200.0) == 7200.0


def test_a_return_that_asks_for_many_replicas_costs_their_starts() -> None:
    few, many = (
        IdleTimeout()
        .with_count(0.0, 2, 0, idle_after_s=60.0, start_s=60.0)
        .with_count(300.0, 0, 2, idle_after_s=60.0, start_s=60.0)
        .with_count(310.0, 2, most, idle_after_s=60.0, start_s=60.0)
        .with_count(400.0, most, 2, idle_after_s=60.0, start_s=60.0)
        for most in (2, 20)
    )
    assert few.wait_s(60.0) == 60.0
    assert many.wait_s(60.0) == pytest.approx(1.5 * 360)
