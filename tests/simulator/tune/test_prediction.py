from __future__ import annotations

import math

import numpy as np
import pytest

from halcyon.scaling.planner.capacity.queueing import ServiceLine
from halcyon_tune.batch_times import Curve
from halcyon_tune.criterion import Criterion
from halcyon_tune.points import Configuration, Point, Rate
from halcyon_tune.prediction import Predictor

LINE = ServiceLine(0.02, 0.002)


def test_unbatched_capacity_is_that_of_a_queue_with_constant_service() -> None:
    # M/D/1: the wait of a request is that of the one before it, plus its service, less the gap, and never below 0.
    gaps = np.random.default_rng(3).exponential(1 / 77, 1_000_000)
    steps = np.cumsum(0.01 - gaps)
    waits = steps - np.minimum.accumulate(steps)
    capacity_rps = Predictor(float(np.quantile(waits, 0.99)) + 0.01).capacity(ServiceLine(0.01, 0.0), Configuration())
    assert capacity_rps == pytest.approx(77, rel=0.05)


def test_loose_objective_allows_almost_full_batches() -> None:
    predictor, configuration = Predictor(2.0), Configuration(max_batch=16)
    assert predictor.capacity(LINE, configuration) > 0.97 * predictor.peak_rps(LINE, configuration)


def test_objective_below_one_row_allows_no_rate() -> None:
    assert Predictor(0.01).capacity(LINE, Configuration(max_batch=16)) == 0


def test_capacity_between_two_factors_is_between_theirs() -> None:
    predictor, configuration = Predictor(0.3), Configuration(max_batch=16)
    slow, middle, quick = (predictor.capacity_near(LINE, configuration, log) for log in (0.12, 0.09, 0.06))
    assert slow < middle < quick
    assert quick == predictor.capacity(LINE, configuration, math.exp(0.06))


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3])
def test_factor_of_times_is_found_from_the_p99_of_a_rate(factor: float) -> None:
    predictor, configuration, rate = Predictor(0.3), Configuration(max_batch=16), 200.0
    p99_s = predictor.p99_s(LINE, configuration, rate, factor=factor, requests=6000)
    point = Point(
        configuration=configuration,
        load=Rate(rate_rps=rate),
        seconds=10,
        throughput_rps=rate,
        p99_s=p99_s,
        requests=6000,
    )
    estimated, is_overloaded = predictor.factor(LINE, configuration, rate, point)
    assert estimated == pytest.approx(factor, rel=0.02)
    assert not is_overloaded


def test_arrivals_that_are_few_by_chance_are_no_overload() -> None:
    predictor, configuration = Predictor(0.3), Configuration(max_batch=16)
    rate = 0.95 * predictor.capacity(LINE, configuration)
    point = Point(
        configuration=configuration,
        load=Rate(rate_rps=rate),
        seconds=10,
        throughput_rps=0.9 * rate,
        offered_rps=0.9 * rate,
        p99_s=predictor.p99_s(LINE, configuration, rate, requests=2000),
        requests=2000,
    )
    estimated, is_overloaded = predictor.factor(LINE, configuration, rate, point)
    assert estimated == pytest.approx(1.0, rel=0.02)
    assert not is_overloaded


def test_throughput_of_an_overloaded_replica_gives_the_factor() -> None:
    predictor, configuration = Predictor(0.3), Configuration(max_batch=16)
    peak = predictor.peak_rps(LINE, configuration)
    point = Point(
        configuration=configuration,
        load=Rate(rate_rps=peak),
        seconds=10,
        throughput_rps=peak / 1.25,
        p99_s=9,
        requests=6000,
    )
    estimated, is_overloaded = predictor.factor(LINE, configuration, peak, point)
    assert estimated == pytest.approx(1.25)
    assert is_overloaded


def test_delay_lets_batches_fill_where_instances_would_take_few_rows() -> None:
    floor, predictor = ServiceLine(0.08, 0.0), Predictor(0.12)
    plain, delayed = (Configuration(instances=8, max_batch=32, delay_s=delay) for delay in (0.0, 0.01))
    assert predictor.capacity(floor, delayed) > 1.2 * predictor.capacity(floor, plain)


def test_measurement_lasts_for_several_objectives() -> None:
    lengths = [Criterion(predictor=Predictor(objective_s)).load(50.0).min_s for objective_s in (0.1, 0.8, 5.0)]
    assert lengths == pytest.approx([1.0, 8.0, 15.0])


def test_curve_on_a_line_predicts_as_the_line_does() -> None:
    predictor, configuration = Predictor(0.3), Configuration(max_batch=16, instances=2)
    curve = Curve(tuple(LINE.seconds(rows) for rows in range(1, 17)))
    assert predictor.capacity(curve, configuration) == pytest.approx(predictor.capacity(LINE, configuration))
    assert predictor.peak_rps(curve, configuration) == pytest.approx(predictor.peak_rps(LINE, configuration))
    curved, expected = (predictor.replica(shape, configuration, 1.5) for shape in (curve, LINE))
    assert curved.peak_rps == pytest.approx(expected.peak_rps)
    assert curved.max_batch == expected.max_batch


def test_curve_that_jumps_makes_smaller_batches_better() -> None:
    predictor = Predictor(0.15)
    times_s = tuple(LINE.seconds(rows) * (1 if rows <= 8 else 3) for rows in range(1, 17))
    small, large = (
        predictor.capacity(Curve(times_s[:most]), Configuration(max_batch=most, instances=1)) for most in (8, 16)
    )
    assert small > 1.3 * large > 0
