"""Every query of the dashboards and alerts, ready to be put to a Prometheus: so that a test can ask each, and none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from generators.monitoring.alerts import ALERTS
from generators.monitoring.dashboards import BOARDS


@dataclass(frozen=True)
class NamedQuery:
    """One query."""

    where: str
    """For people."""
    expression: str
    """PromQL, no words to replace in it."""


def panels(values: Mapping[str, str]) -> Iterator[NamedQuery]:
    """Those of the dashboards; `values` are what Grafana has for `$namespace`, `$__rate_interval` and others, by name without `$`."""
    for board in BOARDS.values():
        for panel in board.panels:
            for query in panel.queries:
                yield NamedQuery(f"{board.title}, {panel.title}: {query.legend}", _chosen(query.expression, values))


def watched(places: Mapping[str, str]) -> Iterator[NamedQuery]:
    """What the alerts are made from; `places` are the words that the chart replaces."""
    for alert in ALERTS:
        yield NamedQuery(f"{alert.name}, what it watches", replaced(alert.watches, places))


def raised(places: Mapping[str, str]) -> Iterator[NamedQuery]:
    """The alerts' own expressions, which have data only where something is wrong."""
    for alert in ALERTS:
        yield NamedQuery(alert.name, replaced(alert.expression, places))


def replaced(text: str, places: Mapping[str, str]) -> str:
    """With what the chart puts there."""
    for word, value in places.items():
        text = text.replace(word, value)
    return text


def _chosen(expression: str, values: Mapping[str, str]) -> str:
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(f"${name}", values[name])
    return expression
