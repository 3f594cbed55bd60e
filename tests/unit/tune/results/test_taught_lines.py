from __future__ import annotations

import pytest

from halcyon_tune.criterion import Criterion
from halcyon_tune.errors import TuneError
from halcyon_tune.estimates import Estimate
from halcyon_tune.points import Callers, Configuration, Point
from halcyon_tune.prediction import Predictor
from halcyon_tune.profile import Profile
from halcyon_tune.results.taught_lines import taught_lines
from halcyon_tune.search import Budget, Search
from halcyon_tune.space import Space
from halcyon_tune.verification import Verification

TODAY = Configuration(instances=2, max_batch=8)
SPACE = Space(
    today=TODAY,
    configurations=(Configuration(instances=1, max_batch=8), TODAY, Configuration(instances=1, max_batch=8, threads=4)),
    tuned=(),
    left_out=(),
)


def point(configuration: Configuration, times: dict[int, float]) -> Point:
    return Point(
        configuration=configuration,
        load=Callers(callers=4),
        seconds=10,
        batches={rows: (100, 100 * seconds) for rows, seconds in times.items()},
    )


def line(factor: float = 1.0, *sizes: int) -> dict[int, float]:
    return {rows: factor * (0.02 + 0.002 * rows) for rows in sizes or (1, 4, 8)}


def search(*points: Point, log_factor: float = 0.0) -> Search:
    estimate = Estimate(log_factor=log_factor, error=0.001, score=1, capacity_rps=1)
    known = Verification(
        space=SPACE,
        candidates=frozenset(SPACE.configurations),
        values=lambda _, __, **_hopeful: (1.0, 1.0),
        estimates={TODAY: (estimate,)},
    )
    return Search(
        space=SPACE,
        criterion=Criterion(predictor=Predictor(0.4)),
        budget=Budget(),
        profile=Profile(SPACE, 0.4, points),
        verification=known,
    )


SINGLE, DOUBLE = Configuration(instances=1, max_batch=8), TODAY


def test_line_of_the_served_instances_comes_first() -> None:
    lines = taught_lines(search(point(SINGLE, line()), point(DOUBLE, line(1.5))), TODAY)
    assert [line.instances for line in lines] == [2, 1]
    assert lines[0].constant_milliseconds == pytest.approx(30)
    assert lines[0].per_row_milliseconds == pytest.approx(3)
    assert [line.max_batch_size for line in lines] == [8, 8]


def test_other_threads_teach_nothing() -> None:
    threads = Configuration(instances=1, max_batch=8, threads=4)
    lines = taught_lines(search(point(SINGLE, line()), point(DOUBLE, line()), point(threads, line(9))), TODAY)
    assert [line.instances for line in lines] == [2, 1]


def test_batches_beyond_a_jump_teach_nothing_about_smaller_ones() -> None:
    times = line() | {16: 0.5, 32: 1.0}
    lines = taught_lines(search(point(SINGLE, times), point(DOUBLE, line())), TODAY)
    assert {line.max_batch_size for line in lines} == {8}
    assert lines[1].per_row_milliseconds == pytest.approx(2, rel=0.01)


def test_unmeasured_instances_teach_nothing() -> None:
    with pytest.raises(TuneError, match="2 instances, batch 8 were measured"):
        taught_lines(search(point(SINGLE, line())), TODAY)


def test_latencies_that_contradict_batch_times_teach_nothing() -> None:
    with pytest.raises(TuneError, match=r"4\.5 times as long"):
        taught_lines(search(point(SINGLE, line()), point(DOUBLE, line()), log_factor=1.5), TODAY)
