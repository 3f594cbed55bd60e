import numpy as np
import pytest

from halcyon_measure.capacity.long_run import LongRun
from halcyon_measure.capacity.queue_law import QueueLaw


def test_requests_wait_for_the_batch_before_them() -> None:
    law = QueueLaw(0.08, 0.01, batch=2, overhead_s=0.001)
    # 0 alone until 0.09; 1 and 2 together until 0.19; 3 alone until 0.28.
    assert law.latencies(np.array([0.0, 0.01, 0.02, 0.03])) == pytest.approx([0.091, 0.181, 0.171, 0.251])


@pytest.mark.parametrize("instances", [1, 3])
def test_one_request_at_a_time_is_the_same_by_recursion(instances: int) -> None:
    due = np.cumsum(np.random.default_rng(1).exponential(0.03, 500))
    single = QueueLaw(0.05, 0.0, 1, instances)
    ends: list[float] = []
    free = [0.0] * instances
    for at in due.tolist():
        index = free.index(min(free))
        free[index] = max(free[index], at) + 0.05
        ends.append(free[index])
    assert single.latencies(due) == pytest.approx(np.array(ends) - due)


def test_late_share_in_the_long_run_is_that_of_theory() -> None:
    # M/D/1 at half load: P(wait > 0) = 0.5, so half of the requests take longer than one execution.
    run = LongRun(QueueLaw(0.1, 0.0), objective_s=0.1000001, seed=3)
    assert run.late(5.0) == pytest.approx(0.5, abs=0.01)
    # Mean of M/D/1: S (1 + rho / (2 (1 - rho))).
    assert run.mean_s(5.0) == pytest.approx(0.15, rel=0.01)


def test_the_knee_of_one_instance_is_near_half_load() -> None:
    # M/D/1 has its largest rate / mean latency at rho = 2 - sqrt(2).
    assert LongRun(QueueLaw(0.1, 0.0), objective_s=1.0, seed=3).knee() == pytest.approx(5.86, rel=0.05)
