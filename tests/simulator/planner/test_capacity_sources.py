"""The planner in the closed loop of the simulator, for models whose batch times say little about what more pods can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.right.simulated_capacity import KINDS, LOADS, LOCKED, loop, result
from halcyon_simulator.engine.case import Drift, ServiceLaw

BATCHED = ServiceLaw(0.08, 0.006, 8)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", KINDS)
def test_replicas_are_right_where_statistics_return_early(kind: str, load: str) -> None:
    assert result(KINDS[kind], load).is_right


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_fall_no_later_than_with_true_statistics(kind: str) -> None:
    law = KINDS[kind]
    early, true = result(law, "falling"), result(replace(law, reported_s=None), "falling")
    assert all(seconds <= other for seconds, other in zip(early.fallen_s, true.fallen_s, strict=True))


@pytest.mark.parametrize("lock_reported", [True, False], ids=["in batch times", "beside them"])
@pytest.mark.parametrize("law", LOCKED)
def test_replicas_stop_at_one_more_than_a_lock_of_all_pods_allows(law: str, lock_reported: bool) -> None:
    """Two pods answer as much as ten, and the load is four times what one can answer."""
    service = replace(LOCKED[law], lock_reported=lock_reported)
    run = loop(service, (60, service.peak_rps / 2), (900, 4 * service.peak_rps), queue_limit=400)

    assert set(run.counts(220, 959)) == {3}
    assert {source.contradiction for at, source in run.sources if at > 220} == {"SharedLimit"}


@pytest.mark.parametrize("share", [3.0, 12.0])
def test_independent_pods_are_not_taken_for_limited_ones(share: float) -> None:
    """Overload without a lock: the replicas reach what the load needs, or the maximum."""
    run = loop(BATCHED, (60, BATCHED.peak_rps / 2), (400, share * BATCHED.peak_rps), queue_limit=400)

    assert min(run.counts(120, 459)) >= min(share, 10)


def test_requests_that_become_heavier_while_pods_are_added_are_no_shared_limit() -> None:
    """A batch takes three times as long from the moment on at which the load rises, so more pods do help."""
    load = (60, BATCHED.peak_rps / 2), (900, 4 * BATCHED.peak_rps)
    run = loop(BATCHED, *load, queue_limit=400, drift=Drift(60.0, 65.0, 3.0))

    assert min(run.counts(400, 959)) >= 10


@pytest.mark.parametrize("seed", range(1, 6))
def test_requests_that_wait_for_a_batch_are_no_full_pod(seed: int) -> None:
    """A cold pod answers for five seconds before its first batch times are read, and then a step needs more pods."""
    run = loop(BATCHED, (60, 35), (120, 100), seed=seed, latency=False, cold=True)

    assert set(run.counts(0, 59)) == {1}
    assert {source.name for at, source in run.sources if at > 10} == {"BatchStatistics"}
    assert set(run.counts(90, 179)) <= {3, 4}
