"""Order of the models in a list."""

from __future__ import annotations

from typing import Any

from halcyon_cli.output.model_rows import build_row, cost_fields, hourly_cost, sorted_rows, top_table


def priced(name: str, *, gpus: int, per_hour: str, currency: str = "") -> dict[str, Any]:
    cost = {"gpus": gpus, "perHour": per_hour, "currency": currency}
    return {"metadata": {"name": name}, "status": {"cost": cost}}


def test_costs_are_sorted_by_the_price_that_is_shown() -> None:
    rows = [build_row(priced("dear", gpus=1, per_hour="9")), build_row(priced("many", gpus=4, per_hour="2"))]
    assert [row.name for row in sorted_rows(rows, "cost")] == ["dear", "many"]
    by_price = sorted_rows(rows, "cost", 2.5)
    assert [(row.name, hourly_cost(row, 2.5)) for row in by_price] == [("many", 10.0), ("dear", 2.5)]


def costs(*models: dict[str, Any], price: float | None = None) -> tuple[str, list[str]]:
    """Return the heading of the costs of `halcyon top`, and their cells."""
    head, cells = top_table([build_row(model) for model in models], price=price, wide=False, all_namespaces=False)
    return head[6], [line[6] for line in cells]


def test_costs_in_different_currencies_are_not_added() -> None:
    models = [priced("a", gpus=1, per_hour="2", currency="EUR"), priced("b", gpus=1, per_hour="3", currency="USD")]
    assert costs(*models, models[0]) == ("COST/H", ["2.00 EUR", "3.00 USD", "2.00 EUR", "4.00 EUR + 3.00 USD"])
    assert costs(*models[:1], models[0]) == ("COST/H EUR", ["2.00", "2.00", "4.00"])
    assert costs(*models, price=1.5) == ("COST/H", ["1.50", "1.50", "3.00"])


def test_cost_without_a_currency_is_not_added_to_others() -> None:
    models = [priced("a", gpus=1, per_hour="2", currency="EUR"), priced("b", gpus=1, per_hour="3")]
    assert costs(*models) == ("COST/H", ["2.00 EUR", "3.00", "2.00 EUR + 3.00"])


def test_costs_in_different_currencies_are_sorted_by_currency_first() -> None:
    models = [
        priced("a", gpus=1, per_hour="2", currency="EUR"),
        priced("b", gpus=1, per_hour="900", currency="JPY"),
        priced("c", gpus=1, per_hour="3", currency="EUR"),
    ]
    rows = [build_row(model) for model in models]
    assert [row.name for row in sorted_rows(rows, "cost")] == ["c", "a", "b"]
    assert [row.name for row in sorted_rows(rows, "cost", 2.0)] == ["a", "b", "c"]


def test_cost_by_a_given_price_has_no_currency() -> None:
    row = build_row(priced("a", gpus=2, per_hour="2", currency="EUR"))
    assert cost_fields(row, 1.5) == {"costPerHour": 3.0, "currency": ""}
    assert cost_fields(row, None) == {"costPerHour": 2.0, "currency": "EUR"}
