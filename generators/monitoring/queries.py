"""All queries of the dashboards and alerts, with variables and placeholders replaced, so that a test can run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from generators.monitoring.alerts import ALERTS
from generators.monitoring.dashboards import DASHBOARDS


@dataclass(frozen=True)
class NamedQuery:
    """Query with its location."""

    location: str
    """Location of the query, for error messages: a dashboard and a panel, or an alert."""
    expression: str
    """PromQL, with all placeholders replaced."""


def panels(values: Mapping[str, str]) -> Iterator[NamedQuery]:
    """Yield the queries of the dashboards. `values` contains the value of each variable, by name without `$`."""
    for board in DASHBOARDS.values():
        for panel in board.panels:
            for query in panel.queries:
                yield NamedQuery(
                    f"{board.title}, {panel.title}: {query.legend}", _with_variables(query.expression, values)
                )


def watched(places: Mapping[str, str]) -> Iterator[NamedQuery]:
    """Yield the queries for the alerts' input data. `places` maps each placeholder to its value."""
    for alert in ALERTS:
        yield NamedQuery(f"{alert.name}, what it watches", replaced(alert.watches, places))


def raised(places: Mapping[str, str]) -> Iterator[NamedQuery]:
    """Yield the alerts' expressions, which return data only while an alert should fire."""
    for alert in ALERTS:
        yield NamedQuery(alert.name, replaced(alert.expression, places))


def replaced(text: str, places: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced, as the chart does."""
    for placeholder, value in places.items():
        text = text.replace(placeholder, value)
    return text


def _with_variables(expression: str, values: Mapping[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(f"${name}", values[name])
    return expression
