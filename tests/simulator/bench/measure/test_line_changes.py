"""Changes of a model's planner line beside a measurement of its copy, which row 2.2 shows."""

from typing import Any

from benchmarks.measure.place import line_moved_percent


def _line(constant: str, row: str, instances: int = 1, size: int = 1) -> dict[str, Any]:
    return {
        "instances": instances,
        "constantMilliseconds": constant,
        "perRowMilliseconds": row,
        "maxBatchSize": size,
    }


def test_change_is_of_the_time_of_one_row() -> None:
    assert line_moved_percent([_line("12", "4")], [_line("11", "5.32")]) == 2.0
    assert line_moved_percent([_line("16", "0")], [_line("16", "0")]) == 0.0


def test_change_is_the_largest_of_all_lines() -> None:
    before = [_line("10", "0"), _line("20", "0", instances=2)]
    assert line_moved_percent(before, [_line("10.1", "0"), _line("19", "0", instances=2)]) == 5.0


def test_other_lines_have_no_change_in_percent() -> None:
    assert line_moved_percent([_line("16", "0")], []) is None
    assert line_moved_percent([], [_line("16", "0")]) is None
    assert line_moved_percent([_line("16", "0")], [_line("16", "0", instances=2)]) is None
    assert line_moved_percent([_line("16", "0")], [_line("16", "0", size=8)]) is None
