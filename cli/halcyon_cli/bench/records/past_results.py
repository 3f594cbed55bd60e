"""`halcyon bench history NAME`: earlier results of a model, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halcyon.kube import kinds
from halcyon_cli.arguments.options import Output, emit
from halcyon_cli.bench.records import history
from halcyon_cli.kube import fields
from halcyon_cli.kube.object_writer import ObjectWriter

_HEAD = ("MADE AT", "PLACE", "REVISION", "SCENARIO", "ANSWERED", "P50", "P99", "FAILED", "VALID")


def show(cluster: ObjectWriter, name: str, output: Output) -> int:
    """Print the history of a model, and return the exit status.

    Raises:
        ClusterError: there is no such model, or the user may not read the ConfigMap.
    """
    cluster.model(name)
    summaries = history.entries(cluster.find(kinds.CONFIG_MAP, history.name(name)))
    if output.is_data:
        output.data({"results": summaries})
        return 0
    if not summaries:
        emit(f"{name} has no results yet; halcyon bench {name} makes one")
        return 0
    from halcyon_cli.output import tables  # noqa: PLC0415  # rich takes 0.25 s to import

    emit(
        tables.lines(
            tables.table_page(_HEAD, [row(summary) for summary in summaries]), width=output.width, color=output.color
        )
    )
    return 0


def row(summary: Mapping[str, Any]) -> list[str]:
    """Return the table cells of a summary. Pure."""
    place, scenario, run = (fields.mapping(summary.get(part)) for part in ("place", "scenario", "run"))
    requests, latency = (fields.mapping(summary.get(part)) for part in ("requests", "latency"))
    due, answered = (fields.count(requests.get(part)) or 0 for part in ("due", "answered"))
    return [
        str(summary.get("made_at")),
        str(place.get("kind") or "-"),
        str(place.get("revision") or "-"),
        _load(summary, scenario),
        _figure(summary.get("throughput"), "/s"),
        _figure(latency.get("p50"), " ms"),
        _figure(latency.get("p99"), " ms"),
        str(due - answered),
        "yes" if run.get("valid") else "no",
    ]


def _load(summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """Return the load of a summary as text. For a sweep, it is the load of the last point."""
    rate, callers, kind = scenario.get("rate_rps"), scenario.get("callers"), str(scenario.get("kind"))
    load = f"{kind} {rate:g}/s" if isinstance(rate, int | float) else kind if callers is None else f"{kind} x{callers}"
    points = fields.mappings(fields.mapping(summary.get("sweep")).get("points"))
    return f"last of {len(points)} points, {load}" if points else load


def _figure(figure: object, unit: str) -> str:
    value = fields.mapping(figure).get("value")
    if not isinstance(value, int | float):
        return "-"
    return f"{value:.2g}{unit}" if 0 < value < 0.1 else f"{value:.1f}{unit}"
