from __future__ import annotations

import math

import pytest

from halcyon_tune.batch_times import BatchTimes, Curve
from halcyon_tune.points import Callers, Configuration, Point


def point(instances: int, seconds: dict[int, float], *, executions: int = 100) -> Point:
    return Point(
        configuration=Configuration(instances=instances, max_batch=32),
        load=Callers(callers=1),
        seconds=10,
        batches={rows: (executions, executions * mean) for rows, mean in seconds.items()},
    )


def line(rows: int) -> float:
    return 0.02 + 0.002 * rows


def test_line_of_times_on_a_line_is_exact() -> None:
    times = BatchTimes().with_point(point(1, {rows: line(rows) for rows in (1, 4, 16, 32)}))
    fitted = times.line(Configuration(max_batch=16))
    assert fitted is not None
    assert (fitted.t0_s, fitted.row_s) == pytest.approx((0.02, 0.002))
    assert not times.is_bent((1, None))


def test_sizes_beyond_a_cliff_say_nothing_of_smaller_batches() -> None:
    seconds = {rows: line(rows) * (1 if rows <= 16 else 2) for rows in (1, 4, 16, 32)}
    times = BatchTimes().with_point(point(1, seconds))
    below, above = (times.line(Configuration(max_batch=rows)) for rows in (16, 32))
    assert below is not None
    assert above is not None
    assert below.seconds(16) == pytest.approx(line(16))
    assert above.seconds(32) == pytest.approx(2 * line(32), rel=0.15)
    assert times.is_bent((1, None))


def jumping(rows: int) -> float:
    return line(rows) * (1 if rows <= 6 else 2)


def test_times_on_a_line_have_no_curve() -> None:
    times = BatchTimes().with_point(point(1, {rows: line(rows) for rows in (1, 4, 16, 32)}))
    assert times.shape(Configuration(max_batch=16)) == times.line(Configuration(max_batch=16))
    assert not times.is_curved


def test_curve_passes_through_all_measured_times() -> None:
    sizes = (1, 3, 6, 7, 16, 32)
    times = BatchTimes().with_point(point(1, {rows: jumping(rows) for rows in sizes}))
    curve = times.shape(Configuration(max_batch=32))
    assert isinstance(curve, Curve)
    assert len(curve.times_s) == 32
    assert [curve.seconds(rows) for rows in sizes] == pytest.approx([jumping(rows) for rows in sizes])
    assert curve.seconds(2) == pytest.approx(line(2))
    assert curve.line.seconds(1) == pytest.approx(curve.seconds(1))
    assert curve.line.seconds(32) == pytest.approx(curve.seconds(32))


def test_curve_counts_requests_of_several_rows() -> None:
    times = BatchTimes().with_point(point(1, {rows: jumping(rows) for rows in (2, 4, 6, 8, 32)}))
    curve = times.shape(Configuration(max_batch=32), rows_per_request=2.0)
    assert isinstance(curve, Curve)
    assert len(curve.times_s) == 16
    assert curve.seconds(4) == pytest.approx(jumping(8))


def test_curve_of_a_family_has_the_sizes_of_other_families() -> None:
    few = BatchTimes().with_point(point(1, {rows: jumping(rows) for rows in (1, 3, 32)}))
    times = few.with_point(point(2, {rows: 1.5 * jumping(rows) for rows in (1, 2, 3, 4, 6, 7, 8)}))
    curve = times.shape(Configuration(instances=1, max_batch=8))
    assert isinstance(curve, Curve)
    assert curve.seconds(6) == pytest.approx(jumping(6))
    assert curve.seconds(7) == pytest.approx(jumping(7))


def test_pace_of_a_measurement_bends_no_times() -> None:
    usual = point(1, {rows: line(rows) for rows in (1, 4)})
    slow = point(1, {rows: 1.1 * line(rows) for rows in (4, 16)})
    means = BatchTimes().with_point(usual).with_point(slow).means((1, None))
    assert means[1] / means[4] == pytest.approx(line(1) / line(4), rel=0.01)
    assert means[16] / means[4] == pytest.approx(line(16) / line(4), rel=0.01)
    assert means[4] == pytest.approx(1.05 * line(4), rel=0.01)


def test_size_off_the_line_counts_by_its_measurements() -> None:
    times = BatchTimes().with_point(point(1, {rows: line(rows) for rows in (4, 16, 32)}))
    slow = 1.1 * line(1)
    once = times.with_point(point(1, {1: slow, 4: line(4)}))
    often = once
    for _ in range(8):
        often = often.with_point(point(1, {1: slow, 4: line(4)}))
    shapes = [known.shape(Configuration(max_batch=32)) for known in (once, often)]
    assert [known.is_curved for known in (once, often)] == [False, False]
    seconds = [shape.seconds(1) for shape in shapes if shape is not None]
    assert line(1) < seconds[0] < seconds[1] == pytest.approx(slow, rel=0.015)


def test_family_with_one_size_is_the_first_one_scaled() -> None:
    times = BatchTimes().with_point(point(1, {1: line(1), 32: line(32)})).with_point(point(2, {32: 1.5 * line(32)}))
    fitted = times.line(Configuration(instances=2, max_batch=32))
    assert fitted is not None
    assert fitted.seconds(1) == pytest.approx(1.5 * line(1))
    assert times.sharing((2, None)) == pytest.approx(1.5)


def test_unmeasured_family_shares_in_proportion_to_its_instances() -> None:
    times = BatchTimes().with_point(point(1, {1: line(1), 32: line(32)})).with_point(point(2, {32: 1.5 * line(32)}))
    fitted = times.line(Configuration(instances=4, max_batch=32))
    assert fitted is not None
    assert fitted.seconds(32) == pytest.approx(2.5 * line(32))


def test_rows_of_a_request_scale_the_line_of_requests() -> None:
    times = BatchTimes().with_point(point(1, {1: line(1), 32: line(32)}))
    fitted = times.line(Configuration(max_batch=32), 4)
    assert fitted is not None
    assert fitted.row_s == pytest.approx(0.008)


def test_rare_sizes_are_left_out() -> None:
    measured = point(1, {1: line(1), 32: line(32)})
    times = BatchTimes().with_point(Point(**{**measured.__dict__, "batches": {**measured.batches, 7: (1, 5.0)}}))
    assert set(times.means((1, None))) == {1, 32}


def test_one_caller_gives_the_time_of_a_request_without_statistics() -> None:
    single = Point(configuration=Configuration(), load=Callers(callers=1), seconds=5, mean_s=0.08)
    assert BatchTimes().with_point(single).means((1, None)) == {1: 0.08}
    several = Point(configuration=Configuration(), load=Callers(callers=8), seconds=5, mean_s=0.08)
    assert BatchTimes().with_point(several).line(Configuration()) is None


def test_falling_times_make_a_level_line() -> None:
    times = BatchTimes().with_point(point(1, {1: 0.05, 32: 0.04}))
    fitted = times.line(Configuration(max_batch=32))
    assert fitted is not None
    assert fitted.row_s == 0
    assert 0.04 < fitted.t0_s < 0.05


def test_excess_of_batches_is_that_of_their_whole_time() -> None:
    times = BatchTimes().with_point(point(1, {rows: line(rows) for rows in (1, 4, 16, 32)}))
    slower = point(1, {rows: 1.05 * line(rows) for rows in (2, 8, 32)})
    assert times.excess(slower) == pytest.approx(math.log(1.05))
    assert times.excess(point(1, {})) is None
    assert BatchTimes().excess(slower) is None
