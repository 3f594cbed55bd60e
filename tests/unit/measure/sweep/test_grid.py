import pytest

from halcyon_measure.errors import SettingError
from halcyon_measure.sweep import grid
from halcyon_measure.sweep.grid import Point


def test_a_grid_has_each_combination_in_order() -> None:
    assert grid.points(["rows=1,2 x callers=1..4"]) == tuple(
        Point(rows=rows, callers=callers) for rows in (1, 2) for callers in (1, 2, 4)
    )


def test_a_range_has_powers_of_two_and_its_end() -> None:
    assert [point.callers for point in grid.points(["callers=3..20"])] == [3, 6, 12, 20]


def test_a_long_range_has_every_power_of_two() -> None:
    assert [point.rate_rps for point in grid.points(["rate=1..20000"])] == [*(2.0**n for n in range(15)), 20000.0]


def test_forms_of_tensors_are_axes() -> None:
    assert grid.points(["encoding=raw x shared-memory=none,system"]) == (
        Point(encoding="raw", shared_memory="none"),
        Point(encoding="raw", shared_memory="system"),
    )


def test_several_grids_are_a_list_without_repetitions() -> None:
    points = grid.points(["rate=10,20", "rate=20.5", "rate=10"])
    assert [point.rate_rps for point in points] == [10, 20, 20.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows", "must be AXIS=VALUES"),
        ("row=1", "an axis of rows, callers, rate, encoding"),
        ("rows=0", "a whole number above 0"),
        ("rows=1.5", "a whole number"),
        ("rate=x", "a number above 0"),
        ("callers=8..2", "or a range such as 1..32"),
        ("encoding=xml", "there are binary, json"),
        ("shared-memory=cuda", "shared-memory is 'cuda'; there are none, system"),
        ("rows=1 x rows=2", "rows is there twice"),
        ("rate=1 x callers=2", "callers make their own rate"),
        ("callers=9999", "at most 4096"),
    ],
)
def test_invalid_grids_name_axis_value_and_example(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        grid.points([text])


@pytest.mark.parametrize(
    ("count", "seconds", "message"), [(500, 7200, ""), (501, 60, "501 points"), (2, 7300, "2.0 h")]
)
def test_large_sweeps_say_how_long_they_take(count: int, seconds: float, message: str) -> None:
    assert message in grid.too_large(count, seconds)
    assert bool(grid.too_large(count, seconds)) == bool(message)
