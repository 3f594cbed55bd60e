import math

import numpy as np
import pytest

from halcyon_measure.capacity import late_share
from halcyon_measure.capacity.law_fit import Facts
from halcyon_measure.capacity.search import Goal, Observed, Search
from tests.simulator.measure.simulated_server import SimulatedServer

UNBATCHED = SimulatedServer(0.05, 0.0)
BATCHED = SimulatedServer(0.08, 0.006, batch=8)
AT_ONCE = SimulatedServer(0.4, 0.0, instances=8)


@pytest.mark.parametrize("has_statistics", [True, False])
@pytest.mark.parametrize(
    ("server", "objective_s", "true_rps"), [(UNBATCHED, 0.3, 12.48), (BATCHED, 0.5, 55.7), (AT_ONCE, 0.8, 15.49)]
)
def test_found_capacity_is_within_four_percent(
    server: SimulatedServer, objective_s: float, true_rps: float, has_statistics: bool
) -> None:
    search = server.search(Goal(objective_s, seed=3), has_statistics=has_statistics)
    rate, interval = search.answer()
    assert rate == pytest.approx(true_rps, rel=0.04)
    assert interval is not None
    assert interval[0] <= true_rps * 1.01
    assert interval[1] >= true_rps * 0.99
    assert search.runs <= 8
    assert search.spent_s <= 360


def test_a_search_without_objective_runs_at_the_knee() -> None:
    search = UNBATCHED.search(Goal(None), has_statistics=True)
    assert [judgement.step.purpose for judgement in search.judged] == ["knee"]
    assert search.judged[0].step.rate_rps == pytest.approx(20 * (2 - math.sqrt(2)), rel=0.06)


@pytest.mark.parametrize("server", [UNBATCHED, BATCHED])
def test_objective_below_one_execution_has_no_rate(server: SimulatedServer) -> None:
    search = server.search(Goal(0.0499), has_statistics=True)
    assert len(search.judged) == 1
    assert search.answer() == (0.0, (0.0, 0.0))
    assert search.is_confirmed is False


def test_the_same_seed_gives_the_same_search() -> None:
    first, second = (BATCHED.search(Goal(0.5, seed=5), has_statistics=False) for _ in range(2))
    assert [judgement.step for judgement in first.judged] == [judgement.step for judgement in second.judged]


def test_luck_of_the_arrivals_is_subtracted() -> None:
    at = np.arange(1000) / 10
    burst = (at >= 40) & (at < 42)
    estimate = late_share.estimate(at, burst, (at, burst, 0.01), length_s=100.0, block_s=5.0, limit=0.01)
    assert estimate is not None
    assert estimate.luck_removed
    assert estimate.share == pytest.approx(0.01)
    raw = late_share.estimate(at, burst, None, length_s=100.0, block_s=5.0, limit=0.01)
    assert raw is not None
    assert raw.share == pytest.approx(20 / 950)
    assert raw.error > 5 * estimate.error


def test_few_blocks_decide_nothing() -> None:
    at = np.arange(100) / 10
    late = np.zeros(100, dtype=bool)
    estimate = late_share.estimate(at, late, (at, late, 0.0), length_s=10.0, block_s=2.5, limit=0.01)
    assert estimate is not None
    assert estimate.kept(0.01) is None


def test_failures_count_as_late() -> None:
    search = UNBATCHED.search(Goal(0.3), has_statistics=True)
    step, seen = search.judged[-1].step, search.judged[-1].observed
    failing = seen.__class__(
        seen.due, np.where(np.arange(len(seen.due)) % 20, seen.latency, np.nan), seen.length_s, 1.0
    )
    judged = search.after(step, failing).judged[-1]
    assert judged.kept is False


def test_run_without_an_answer_selects_no_law() -> None:
    facts = Facts(single_s=2.0, saturation_rps=4.0)
    search = Search.begin(Goal(3.0), facts, spent_s=30, runs=2)
    step = search.next()
    assert step is not None
    for due in (np.empty(0), np.array([1.0, 2.0])):
        observed = Observed(due=due, latency=np.full(len(due), np.nan), length_s=step.duration_s, wall_s=20)
        assert search.after(step, observed).law == search.law
