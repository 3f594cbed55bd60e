"""The table of the rules, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.verdicts_reference import page
from halcyon_measure.breakdown.limits import RULES, Bound

ROOT = Path(__file__).parents[4]


def test_page_of_the_verdicts_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "verdicts.md").read_text() == page()


def test_fields_of_the_rules_are_fields_of_the_model_deployment() -> None:
    reference = (ROOT / "docs" / "reference" / "modeldeployment.md").read_text()
    fields = {rule.field for rule in RULES if rule.field}
    assert fields
    assert [field for field in fields if f"`{field}`" not in reference] == []


@pytest.mark.parametrize(("sign", "value", "holds"), [(">=", 0.5, True), (">=", 0.4, False), ("<", 0.4, True)])
def test_a_bound_compares_one_figure(sign: str, value: float, holds: bool) -> None:
    assert Bound("busy", sign, 0.5).holds({"busy": value}) is holds
    assert Bound("busy", sign, 0.5).holds({}) is None
