"""The stand-in of a model: what it tells adds up, and the planner reads its law out of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stand_in import Law, StandIn
from halcyon.api.documents.observation_report import AgentReport
from halcyon.scaling.planner.capacity.replica_capacity import Capacity
from halcyon.signals.validation import validate

EPOCH = 1_763_700_000.0


def played(rate_rps: float, pods: list[str], *, seconds: int = 60) -> tuple[StandIn, AgentReport]:
    model = StandIn("ns", "m")
    model.set_rate(EPOCH, rate_rps, pods)
    record = model.report(EPOCH, pods, "m-balancer-0")
    for second in range(1, seconds + 1):
        record = model.report(EPOCH + second, pods, "m-balancer-0")
    return model, record


@given(rate_rps=st.floats(0, 400), count=st.integers(1, 12))
def test_arrivals_are_served_or_waiting_and_no_pod_exceeds_its_capacity(rate_rps: float, count: int) -> None:
    pods = [f"p{n}" for n in range(count)]
    _, record = played(rate_rps, pods)
    assert record.balancer is not None
    served = sum(pod.succeeded or 0 for pod in record.pods)
    waiting = record.balancer.queued + sum(pod.pending or 0 for pod in record.pods)
    # Whole numbers are told of each pod: less than one is lost in each, twice.
    assert record.balancer.requests == pytest.approx(60 * rate_rps, abs=1)
    assert served + waiting == pytest.approx(60 * rate_rps, abs=2 * count + 2)
    assert all((pod.succeeded or 0) <= 60 * Law().peak_rps + 1 for pod in record.pods)
    assert (waiting > 2 * count + 2) <= (rate_rps > 0.99 * count * Law().peak_rps)


@given(rate_rps=st.floats(0, 400), count=st.integers(0, 12))
def test_a_record_is_one_that_the_operator_takes_without_complaint(rate_rps: float, count: int) -> None:
    _, record = played(rate_rps, [f"p{n}" for n in range(count)], seconds=10)
    vetted = validate(AgentReport.from_json(record.to_json()))
    assert vetted.report == record
    assert vetted.implausible == 0


@given(rate_rps=st.floats(0, 200))
def test_the_service_line_can_be_read_from_its_batches(rate_rps: float) -> None:
    _, record = played(rate_rps, ["p0"])
    batches = record.pods[0].batches
    assert batches is not None
    line = Capacity().with_batches({rows: (count, us / 1e6) for rows, count, us in batches.sizes}).line
    assert line is not None
    assert line.t0_s == pytest.approx(0.080, rel=0.02)
    assert line.row_s == pytest.approx(0.006, rel=0.05)


def test_counters_never_fall_while_the_same_pods_serve() -> None:
    model = StandIn("ns", "m", rate_rps=50)
    before = model.report(EPOCH, ["a"], "x")
    for second, pods in enumerate((["a"], ["a", "b"], ["a", "b"], ["a"]), start=1):
        model.rate_rps = 50.0 * second
        after = model.report(EPOCH + second, pods, "x")
        was = {pod.name: pod for pod in before.pods}
        for pod in after.pods:
            old = was.get(pod.name)
            assert old is None or (pod.rows or 0) >= (old.rows or 0)
            assert old is None or (pod.executions or 0) >= (old.executions or 0)
        before = after


def test_requests_wait_in_the_balancer_without_a_pod() -> None:
    _, record = played(10, [], seconds=3)
    assert record.balancer is not None
    assert record.balancer.queued == 30
    assert record.pods == ()


@pytest.mark.parametrize(("rate_rps", "batch"), [(0.0, 1.0), (5.0, 1.0), (35.0, 3.544), (62.5, 8.0), (300.0, 8.0)])
def test_the_mean_batch_is_what_arrives_during_one(rate_rps: float, batch: float) -> None:
    law = Law()
    mean_batch = law.batch_at(rate_rps)
    assert mean_batch == pytest.approx(batch, rel=1e-3)
    if 1 < mean_batch < law.max_batch:
        assert mean_batch == pytest.approx(rate_rps * (law.t0_s + law.a_s * mean_batch))
