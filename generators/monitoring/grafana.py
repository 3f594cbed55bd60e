"""Value types for Grafana dashboards, and their conversion to JSON for Grafana 9.5 and newer.

A panel has a title, a description, a unit, and a legend for each query. Its queries identify models by the labels
`namespace` and `model_deployment`, and filter them by the variables of the dashboard. The dashboards themselves are in
`dashboards`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
Unit = Literal["short", "reqps", "s", "percentunit", "bytes", "none", "ops", "dateTimeFromNow"]
"""Grafana's names for units, in this order: a number, requests per second, seconds, a ratio shown in percent, bytes,
text, operations per second, the age of a timestamp."""
Kind = Literal["timeseries", "stat", "table", "state-timeline"]

COLUMNS: Final = 24
SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION: Final = 38


@dataclass(frozen=True)
class Query:
    """Query of a panel."""

    expression: str
    """PromQL expression, which may contain the dashboard's variables and $__rate_interval."""
    legend: str
    """Legend as a Grafana label template, for example `{{pod}}`."""


@dataclass(frozen=True)
class Panel:
    """Panel of a dashboard."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    limits: Mapping[float, str] = field(default_factory=dict)
    """Colours by threshold. Values below the first threshold are green."""
    hidden: tuple[str, ...] = ()
    """Labels that a table panel doesn't show."""


@dataclass(frozen=True)
class PanelRow:
    """Row of panels under a title, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """Variable of a dashboard, shown as a selection at its top."""

    name: str
    label: str
    expression: str
    """Query for the choices, for example `label_values(METRIC, LABEL)`."""
    several: bool = True
    all_value: str | None = ".*"
    """Value of the choice All. `.*` also selects series without the label. None selects only the listed choices, which
    is needed if the queries contain metrics that programs other than Halcyon export."""


@dataclass(frozen=True)
class GrafanaDashboard:
    """Grafana dashboard with its variables and rows of panels."""

    uid: str
    title: str
    description: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        """Return all panels in order."""
        for row in self.rows:
            yield from row.panels


def dashboard(board: GrafanaDashboard) -> Json:
    """Return the dashboard as JSON for Grafana."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["halcyon"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "links": [_link()],
        "annotations": {"list": []},
        "templating": {"list": [_source(), *map(_variable, board.variables)]},
        "panels": list(_layout(board.rows)),
    }


def _layout(rows: Iterable[PanelRow]) -> Iterator[Json]:
    """Yield the panels with their positions. A panel that doesn't fit next to the previous ones starts a new line."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": []} | _place(
            0, top, 24, 1
        )
        top += 1
        left = deepest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, deepest = top + deepest, 0, 0
            number += 1
            yield _panel(panel, number) | _place(left, top, panel.width, panel.height)
            left, deepest = left + panel.width, max(deepest, panel.height)
        top += deepest


def _place(left: int, top: int, width: int, height: int) -> Json:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel, number: int) -> Json:
    instant = panel.kind in {"table", "stat"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [_target(query, letter, panel, instant=instant) for query, letter in _lettered(panel.queries)],
        "transformations": _transformations(panel),
    }


def _lettered(queries: Sequence[Query]) -> Iterator[tuple[Query, str]]:
    return zip(queries, "ABCDEFGHIJKLMNOP", strict=False)


def _target(query: Query, letter: str, panel: Panel, *, instant: bool) -> Json:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    steps = [{"color": "green", "value": None}, *({"color": c, "value": v} for v, c in sorted(panel.limits.items()))]
    defaults: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        drawing = {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0, "showPoints": "never", "spanNulls": False}
        defaults |= {"min": 0, "custom": {"stacking": stacking, **drawing}}
    if panel.kind in {"stat", "state-timeline"} and panel.limits:
        defaults["color"] = {"mode": "thresholds"}
    return defaults


def _options(panel: Panel) -> Json:
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        reduction = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduction, "colorMode": "value", "graphMode": "none", "textMode": "auto"}
    if panel.kind == "state-timeline":
        return {"mergeValues": True, "showValue": "never", "legend": {"displayMode": "list", "placement": "bottom"}}
    return {"showHeader": True, "cellHeight": "sm"}


def _transformations(panel: Panel) -> list[Json]:
    """Return the transformations of a table: one line per series, without empty columns and hidden labels."""
    if panel.kind != "table":
        return []
    names = {f"Value #{letter}": query.legend for query, letter in _lettered(panel.queries)}
    if len(panel.queries) == 1:
        names = {"Value": panel.queries[0].legend}
    hidden = dict.fromkeys(("Time", "__name__", *panel.hidden), True)
    organize = {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}}
    return [{"id": "merge", "options": {}}, organize] if len(panel.queries) > 1 else [organize]


def _source() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    all_value = {} if variable.all_value is None else {"allValue": variable.all_value}
    everything = {"includeAll": True, **all_value, "current": {"text": "All", "value": "$__all"}}
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.expression, "refId": variable.name},
        "definition": variable.expression,
        "refresh": 2,
        "sort": 1,
        "multi": variable.several,
        "hide": 0,
        **(everything if variable.several else {}),
    }


def _link() -> Json:
    return {"title": "Halcyon", "type": "dashboards", "tags": ["halcyon"], "asDropdown": True, "keepTime": True}
