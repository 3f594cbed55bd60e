from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.space import Space
from halcyon_tune.verification import Verification

CONFIGURATIONS = tuple(
    Configuration(instances=count, max_batch=batch, delay_s=delay)
    for count in (1, 2, 4)
    for batch in (1, 4, 16)
    for delay in (0.0, 0.002)
)
SPACE = Space(today=CONFIGURATIONS[0], configurations=CONFIGURATIONS, tuned=(), left_out=())


def rate(configuration: Configuration) -> float:
    """Predicted capacity, without delays: 16 x 4 is the best of 288."""
    return 18 * math.sqrt(configuration.max_batch) * configuration.instances


def values(configuration: Configuration, log_factor: float, /, *, is_hopeful: bool = False) -> tuple[float, float]:
    del is_hopeful
    rate_rps = rate(configuration) * (0.99 if configuration.delay_s else 1.0) * math.exp(-log_factor)
    return rate_rps, rate_rps


def point(configuration: Configuration, **failure: str) -> Point:
    measured = Point(configuration=configuration, load=Rate(rate_rps=100), seconds=10)
    return replace(measured, **failure) if failure else measured  # type: ignore[arg-type]  # a literal


def estimate(configuration: Configuration, log_factor: float = 0.0) -> Estimate:
    rate_rps = values(configuration, log_factor)[0]
    return Estimate(log_factor=log_factor, error=0.03, score=rate_rps, capacity_rps=rate_rps)


def run(
    truth: Callable[[Configuration], float] = lambda _: 0.0, most: int = 30
) -> tuple[Verification, list[Configuration]]:
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=values)
    requested: list[Configuration] = []
    while len(requested) < most and (chosen := state.next()) is not None:
        requested.append(chosen)
        state = state.after(point(chosen), estimate(chosen, truth(chosen)))
    return state, requested


BEST = Configuration(instances=4, max_batch=16)


def test_good_predictions_need_few_points() -> None:
    state, requested = run()
    assert requested[0] == BEST
    assert state.best() == BEST
    assert len(requested) <= 7
    assert not state.halving


def test_delay_of_the_best_configuration_is_measured() -> None:
    _, requested = run()
    assert Configuration(instances=4, max_batch=16, delay_s=0.002) in requested


def test_error_of_one_family_moves_the_search_to_another() -> None:
    state, requested = run(lambda configuration: 0.9 if configuration.instances == 4 else 0.0)
    assert state.best() is not None
    assert state.best() != BEST
    # 4 instances with batch 16 have 117, 2 with batch 16 have 144.
    assert (state.best() or BEST).instances == 2
    assert len(requested) < len(CONFIGURATIONS)


def test_correction_of_a_family_applies_to_its_other_configurations() -> None:
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=values)
    for batch in (4, 16):
        configuration = Configuration(instances=4, max_batch=batch)
        state = state.after(point(configuration), estimate(configuration, 0.2))
    own, _ = state.correction(Configuration(instances=4, max_batch=1))
    other, _ = state.correction(Configuration(instances=1, max_batch=1))
    assert own == pytest.approx(0.2, abs=0.03)
    assert 0 < other < own


def test_predictions_off_by_more_than_15_percent_halve_the_neighbourhood() -> None:
    random = {
        configuration: (0.4 if (configuration.instances + configuration.max_batch) % 3 == 0 else -0.1)
        for configuration in CONFIGURATIONS
    }
    state, requested = run(lambda configuration: random[configuration])
    assert state.is_off
    assert state.halving
    assert state.worst_surprise > 0.15
    truth = {configuration: values(configuration, random[configuration])[0] for configuration in CONFIGURATIONS}
    assert truth[state.best() or BEST] > 0.95 * max(truth.values())
    assert len(requested) < 30


def test_configuration_without_memory_takes_larger_ones_out() -> None:
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=values)
    failed = Configuration(instances=2, max_batch=16)
    state = state.after(point(failed, failure="Memory", why="out of memory"), None)
    assert BEST in state.failed
    assert Configuration(instances=1, max_batch=16) not in state.failed
    assert state.next() == Configuration(instances=4, max_batch=4)


def test_load_failure_takes_out_its_own_configuration_alone() -> None:
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=values)
    failed = Configuration(instances=2, max_batch=16)
    state = state.after(point(failed, failure="Load", why="no such engine"), None)
    assert state.failed == {failed}


def test_configuration_that_keeps_the_objective_at_no_rate_is_never_the_best() -> None:
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=lambda _, __, **_hopeful: (0.0, 0.0))
    assert state.next() is None
    assert state.after(point(BEST), Estimate(log_factor=0, error=0.03, score=0, capacity_rps=0)).best() is None


def test_configuration_of_a_fast_measurement_wins_no_comparison_by_it() -> None:
    fast, usual = (Configuration(instances=4, max_batch=16, delay_s=delay) for delay in (0.0, 0.002))
    state = Verification(space=SPACE, candidates=frozenset(CONFIGURATIONS), values=values)
    for configuration, noise in ((fast, -0.1), (usual, 0.1)):
        measured = replace(estimate(configuration, 0.0), batch_log_factor=noise)
        state = state.after(point(configuration), measured)
    assert state.factor(fast) == pytest.approx(state.factor(usual))
    assert state.batch_log_factor(fast.family)[0] == pytest.approx(0.0)


def test_rate_of_a_fast_measurement_counts_at_the_usual_speed() -> None:
    state = Verification(
        space=SPACE,
        candidates=frozenset(CONFIGURATIONS),
        values=values,
        batch_log_factors={BEST.family: (0.0, 0.0, 0.0)},
    )
    kept = 1.5 * rate(BEST)
    measured = replace(estimate(BEST), batch_log_factor=-0.08, kept=kept, kept_rps=kept)
    assert state.after(point(BEST), measured).opinion(BEST).score == pytest.approx(kept * math.exp(-0.06))


def test_score_is_a_mean_over_the_likely_batch_times() -> None:
    steep, flat = (Configuration(instances=4, max_batch=16, delay_s=delay) for delay in (0.0, 0.002))

    def cliff(configuration: Configuration, log_factor: float, /, *, is_hopeful: bool = False) -> tuple[float, float]:
        del is_hopeful
        rate_rps = (100.0 if log_factor <= 0.01 else 50.0) if configuration == steep else 95.0
        return rate_rps, rate_rps

    state = Verification(space=SPACE, candidates=frozenset({steep, flat}), values=cliff)
    for configuration in (steep, flat):
        state = state.after(point(configuration), estimate(configuration))
    assert state.opinion(steep).score < state.opinion(flat).score == pytest.approx(95.0)
    assert state.best() == flat


def test_rival_that_could_beat_the_best_score_is_measured_again() -> None:
    best, rival, poor = (Configuration(instances=4, max_batch=batch) for batch in (16, 4, 1))
    rates = {best: 100.0, rival: 99.0, poor: 20.0}

    def of(configuration: Configuration, log_factor: float, /, *, is_hopeful: bool = False) -> tuple[float, float]:
        del is_hopeful
        return (rates[configuration] * math.exp(-log_factor),) * 2

    state = Verification(space=SPACE, candidates=frozenset(rates), values=of)
    for configuration in rates:
        state = state.after(point(configuration), Estimate(log_factor=0.0, error=0.01, score=1.0, capacity_rps=1.0))
    assert state.opinion(best).score < state.opinion(rival).upper < state.opinion(best).upper
    assert state.next() == rival
