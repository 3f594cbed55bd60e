"""Order of the models in a list."""

from __future__ import annotations

from typing import Any

from halcyon_cli.output.model_rows import build_row, hourly_cost, sorted_rows


def priced(name: str, *, gpus: int, per_hour: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"cost": {"gpus": gpus, "perHour": per_hour}}}


def test_costs_are_sorted_by_the_price_that_is_shown() -> None:
    rows = [build_row(priced("dear", gpus=1, per_hour="9")), build_row(priced("many", gpus=4, per_hour="2"))]
    assert [row.name for row in sorted_rows(rows, "cost")] == ["dear", "many"]
    by_price = sorted_rows(rows, "cost", 2.5)
    assert [(row.name, hourly_cost(row, 2.5)) for row in by_price] == [("many", 10.0), ("dear", 2.5)]
