"""The check of the table's page against runs."""

from __future__ import annotations

from pathlib import Path

from halcyon_simulator.benchmark.page import figures
from halcyon_simulator.benchmark.page_check import Difference, compare, shown
from halcyon_simulator.benchmark.result_store import Store
from halcyon_simulator.benchmark.statistics import Cell
from halcyon_simulator.benchmark.table import Table, cells
from halcyon_simulator.policies.registry import parsed

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks" / "scaling.md"


def test_every_row_of_the_page_is_read_with_its_policies() -> None:
    page = shown(PAGE.read_text())

    assert len(page) >= 40
    assert all(len(policies) == 3 and {"halcyon", "halcyon+balancer"} < policies.keys() for policies in page.values())
    known = {(cell.scenario, cell.law, cell.start_s) for cell in cells(full=True)}
    assert {(cell.scenario, cell.law, cell.start_s) for cell in page} <= known


def test_figures_that_runs_do_not_give_are_named(tmp_path: Path) -> None:
    cell = Cell("S3", "L1", 60.0)
    points = Table(Store(tmp_path), jobs=1, names=()).listed({cell: [parsed("static")]})
    (static,) = points[cell]

    assert compare({cell: {"static": figures(static)}}, points) == []
    assert compare({cell: {"static": "0.01 % at 9.99", "ray": "1.00 % at 1.00"}}, points) == [
        Difference("S3 L1 60", "static", "0.01 % at 9.99", figures(static)),
        Difference("S3 L1 60", "ray", "1.00 % at 1.00", "not run"),
    ]
