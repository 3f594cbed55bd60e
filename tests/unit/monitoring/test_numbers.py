"""The definitions of numbers cover everything that is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.monitoring import numbers
from halcyon.monitoring import agent_metrics, per_model_metrics

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "operator/halcyon/dashboard/static"
SHOWN = "; ".join(place for group in numbers.GROUPS for number in group.numbers for place in number.places)
NO_NUMBERS = {"Model", "State", "Age", "URL", "Revision"}
"""Columns and facts that aren't measured."""
OF_DECISIONS = {
    "condition",
    "batch_condition",
    "part_replicas",
    "limited",
    "desired_changes_total",
    "signal_timestamp_seconds",
    "signal_missing",
}
"""Metrics of conditions and decisions, with one place each, which docs/reference/metrics.md explains."""


def words(page: str, place: str) -> set[str]:
    """Return the words that the definitions list for a page of the dashboard."""
    entries = re.findall(rf"(?:^|; )(?:fleet, )?{page}(?:, model)?: ([^;]*)", place)
    return {word.strip() for text in entries for word in text.split(",")} | set(entries)


def test_names_of_numbers_are_unique() -> None:
    names = [number.name for group in numbers.GROUPS for number in group.numbers]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("title", re.findall(r'title: "([^"]+)", sort', (STATIC / "fleet.js").read_text()))
def test_each_column_of_the_fleet_has_a_definition(title: str) -> None:
    assert title in NO_NUMBERS or title in words("fleet", SHOWN)


@pytest.mark.parametrize("fact", re.findall(r'fact\("([^"]+)"', (STATIC / "model.js").read_text()))
def test_each_fact_of_a_model_has_a_definition(fact: str) -> None:
    assert fact in NO_NUMBERS or fact in words("model", SHOWN)


@pytest.mark.parametrize("metric", per_model_metrics.METRICS, ids=lambda metric: metric.name)
def test_each_metric_of_a_model_has_a_definition(metric: per_model_metrics.Metric) -> None:
    plain = metric.name.removeprefix(per_model_metrics.PREFIX)
    apart = plain in OF_DECISIONS or plain.endswith(("_timestamp_seconds", "gpu_target_ratio"))
    assert apart or f"`{metric.name}`" in SHOWN


@pytest.mark.parametrize(
    "name", ["requests_total", "rejected_total", "errors_total", "server_rejected_total", "inflight"]
)
def test_each_counter_of_requests_in_agents_has_a_definition(name: str) -> None:
    assert f"`{agent_metrics.named(name).name}`" in SHOWN
