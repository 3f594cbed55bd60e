"""Rows of the quality tables: one function decides whether a row holds, and a measurement replaces its own rows only."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adoption import dashboard
from benchmarks.measure import page as measure_page
from benchmarks.quality import rows
from benchmarks.quality.__main__ import main as quality_main
from benchmarks.quality.rows import DATA, PAGES, TITLES, Row, holds, missing, page, raw, read, record, short


def test_row_holds_if_each_figure_is_in_its_bound() -> None:
    limits = [("late", 0.1, "<="), ("answered", 30, "=="), ("pods", 4, ">=")]
    value = {"late": 0.1, "answered": 30, "pods": 4}
    assert holds(Row("2.1", "w", value, "t", limits))
    for name, worse in (("late", 0.2), ("answered", 29), ("pods", 3)):
        assert not holds(Row("2.1", "w", {**value, name: worse}, "t", limits))


def test_row_without_a_measurement_or_a_limit_does_not_hold() -> None:
    assert not holds(Row("2.1", "w", {"late": None}, "t", [("late", 0.1, "<=")]))
    assert not holds(Row("2.1", "w", {}, "t", [("late", 0.1, "<=")]))
    assert not holds(Row("2.1", "w", {"late": 0}, "t", []))


def test_record_replaces_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "OUT", tmp_path)
    monkeypatch.setattr(rows, "PAGES", tmp_path)
    monkeypatch.setattr(rows, "DATA", tmp_path / "data")
    record("right", [Row("10.1", "ten", {"s": 3}, "<= 2", [("s", 2, "<=")], raw=[1, 2, 3], n=3)])
    record("right", [Row("2.1", "two", {"s": 1}, "<= 2", [("s", 2, "<=")])])
    record("right", [Row("2.1", "two again", {"s": 2}, "<= 2", [("s", 2, "<=")])])
    written = json.loads((tmp_path / "right.json").read_text())["rows"]
    assert [(row["id"], row["what"], row["holds"]) for row in written] == [
        ("2.1", "two again", True),
        ("10.1", "ten", False),
    ]
    assert json.loads((tmp_path / "raw" / "right-10.1.json").read_text()) == [1, 2, 3]
    assert [line.split(":")[0] for line in short("right")] == ["right 10.1 falls short"]
    assert (tmp_path / "right.md").read_text() == page("right", written)


def test_record_in_a_new_clone_keeps_the_committed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("OUT", "build"), ("PAGES", "docs"), ("DATA", "docs/data")):
        monkeypatch.setattr(rows, name, tmp_path / folder)
    (tmp_path / "docs").mkdir()
    record("hold", [Row("1.1", "kept", {"s": 3}, "<= 2", [("s", 2, "<=")], why="a reason")])
    committed = read("hold")
    shutil.rmtree(tmp_path / "build")
    record("hold", [Row("1.2", "added", {"s": 1}, "<= 2", [("s", 2, "<=")])])

    assert [row["what"] for row in read("hold")] == ["kept", "added"]
    assert read("hold")[0] == committed[0]
    assert (tmp_path / "docs/hold.md").read_text() == page("hold", read("hold"))
    assert (tmp_path / "build/hold.json").read_text() == (tmp_path / "docs/data/hold.json").read_text()


def test_expected_row_is_missing_until_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUT", "PAGES", "DATA"):
        monkeypatch.setattr(rows, name, tmp_path / name)
    (tmp_path / "PAGES").mkdir()
    monkeypatch.setattr(rows, "EXPECTED", {"right": ("3.2", "4.1")})
    record("right", [Row("3.2", "w", {"s": 3}, "t", [("s", 2, "<=")])])
    assert missing("right") == ["right 4.1 isn't measured"]
    record("right", [Row("4.1", "w", {"s": 3}, "t", [("s", 2, "<=")])])
    assert missing("right") == missing("tune") == []


def test_recorded_rows_of_a_table_are_expected() -> None:
    for table, expected in rows.EXPECTED.items():
        assert {str(row["id"]) for row in read(table)} <= set(expected)


def test_raw_samples_of_a_row_are_those_of_the_last_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUT", "PAGES", "DATA"):
        monkeypatch.setattr(rows, name, tmp_path / name)
    (tmp_path / "PAGES").mkdir()
    assert raw("right", "3.2") is None
    record("right", [Row("3.2", "w", {"s": 1}, "t", [("s", 2, "<=")], raw=[{"kind": "exit"}])])
    assert raw("right", "3.2") == [{"kind": "exit"}]


@pytest.mark.parametrize("table", TITLES)
def test_page_of_a_table_is_made_from_its_committed_rows(table: str) -> None:
    assert read(table), f"{DATA / table}.json has no rows"
    assert (PAGES / f"{table}.md").read_text() == page(table, read(table)), "python -m benchmarks.quality pages"


def test_page_of_the_targets_is_up_to_date() -> None:
    ids = [line.id for _, section in measure_page.SECTIONS for line in section]
    assert len(ids) == len(set(ids))
    assert {str(row["id"]) for row in read("measure")} <= set(ids)
    assert measure_page.PAGE.read_text() == measure_page.page(read("measure")), "python -m benchmarks.quality pages"


def test_targets_without_a_row_have_a_reason() -> None:
    assert "none: it isn't recorded yet" in next(
        line for line in measure_page.page([]).splitlines() if line.startswith("| 1.3 |")
    )


SAMPLES: dict[str, list[Any]] = {
    "first_paint_s": [0.31, 0.35, 0.9],
    "axe": [[], []],
    "console": [[], [], []],
    "frames_ms": [16.7, 33.4, 49.9],
    "longest_task_cpu_ms": [20.0, 31.0],
    "idle_cpu_share": [0.001, 0.002, 0.004],
}


def test_dashboard_s_row_is_of_its_samples() -> None:
    row = dashboard.row(SAMPLES, has_passed=True)
    assert holds(row)
    assert row.value["first paint seconds, median"] == 0.35
    assert (row.value["pages checked by axe"], row.value["pages whose console was read"]) == (2, 3)
    assert (row.raw, row.why) == (SAMPLES, "")


@pytest.mark.parametrize(
    "worse",
    [
        {"first_paint_s": [0.71]},
        {"axe": [[], ["label: <input>"]]},
        {"console": [["error"]]},
        {"frames_ms": [16.7, 51]},
        {"idle_cpu_share": [0.011]},
        *({name: []} for name in SAMPLES if name != "longest_task_cpu_ms"),
    ],
)
def test_dashboard_s_row_falls_short_if_a_figure_is_worse_or_unknown(worse: dict[str, list[Any]]) -> None:
    assert not holds(dashboard.row(SAMPLES | worse, has_passed=True))


def test_frames_of_a_busy_machine_fall_short_with_the_reason() -> None:
    row = dashboard.row(SAMPLES | {"frames_ms": [16.7, 133.3]}, has_passed=True)
    assert not holds(row)
    assert row.why == "the page's tasks take less CPU time than a frame may; other programs ran on the machine"
    slow = dashboard.row(SAMPLES | {"frames_ms": [133.3], "longest_task_cpu_ms": [120.0]}, has_passed=True)
    assert (holds(slow), slow.why) == (False, "")


def test_dashboard_s_row_falls_short_if_a_test_failed() -> None:
    assert not holds(dashboard.row(SAMPLES, has_passed=False))


def test_record_without_a_target_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert quality_main(["record"]) == 2
    assert "record needs the make target that has passed" in capsys.readouterr().err
