"""Report charts over load, batch size and protocol, from the points of all runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halcyon_measure.report import second_engine_section
from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, section, table
from halcyon_measure.results.number_text import count_text, number, quantity
from halcyon_measure.results.sections.sweep import SweepPoint, request_form

_OTHERS = "others"
"""Name of the line for points without a value for the settings that separate the other lines."""


@dataclass(frozen=True)
class Point:
    """One load with a certain protocol and payload size, and its results."""

    rows: str
    server: str
    """Server, model, replicas and kind of load, if the points differ in them."""
    protocol: str
    """Protocol and encoding as text."""
    rate_rps: float | None
    """Requested rate in requests per second; None if callers determine the rate."""
    callers: int | None
    throughput: float | None
    """Answers per second; None if unknown."""
    p99_ms: float | None
    cpu_us: float | None
    """CPU time of the client per request, in microseconds."""


def points(runs: Sequence[LabelledRun]) -> list[Point]:
    """Return the points of the runs whose load is constant."""
    collected: list[Point] = []
    for run in runs:
        if run.document.sweep is not None:
            collected += _of_sweep(run, run.document.sweep.points)
            continue
        target, scenario = run.document.target, run.document.scenario
        if scenario.kind not in {"sustained", "burst", "blocking"}:
            continue
        collected.append(
            Point(
                rows=target.rows,
                server=run.server,
                protocol=request_form(target.protocol, target.encoding, target.shared_memory),
                rate_rps=scenario.rate_rps if scenario.kind != "blocking" else None,
                callers=scenario.callers,
                throughput=run.document.throughput.value,
                p99_ms=run.document.latency.p99.value,
                cpu_us=run.document.client.cpu_per_request.value,
            )
        )
    return collected


def _of_sweep(run: LabelledRun, points: Sequence[SweepPoint]) -> list[Point]:
    replicas = {point.replicas for point in points}
    return [
        Point(
            rows=point.rows,
            server=", ".join(
                filter(None, (run.server, count_text(point.replicas, "replica") if len(replicas) > 1 else ""))
            ),
            protocol=point.form,
            rate_rps=point.rate_rps,
            callers=point.callers,
            throughput=point.throughput.value,
            p99_ms=point.p99.value,
            cpu_us=point.cpu_per_request.value,
        )
        for point in points
    ]


def sweep(runs: Sequence[LabelledRun]) -> Html:
    """Return a chart for each axis on which the runs have at least two points."""
    all_points = points(runs)
    charts = [
        *_by_load(all_points, lambda point: point.rate_rps, "rate, requests/s"),
        *_by_load(all_points, lambda point: None if point.callers is None else float(point.callers), "callers"),
        *_by_rows(all_points),
        *_by_protocol(all_points),
    ]
    pictures = element("div", charts, class_="charts") if any(charts) else None
    return section("Sweep", pictures, _tables(runs), anchor="sweep")


def _tables(runs: Sequence[LabelledRun]) -> list[Content]:
    """Return tables with the points of sweeps, and with the cost of each payload encoding."""
    contents: list[Content] = []
    sweeps = [(run.label, run.document.sweep) for run in runs if run.document.sweep is not None]
    for label, sweep in sweeps:
        rows: list[list[Content]] = [
            [
                f"{_rows(point.rows)}, {point.form}",
                f"{number(point.rate_rps)}/s" if point.rate_rps is not None else count_text(point.callers, "caller"),
                number(point.replicas),
                *(number(figure.value) for figure in (point.throughput, point.p50, point.p99, point.cpu_per_request)),
                number(point.failed),
                "yes" if point.valid else f"no: {'; '.join(point.invalid_because)}",
            ]
            for point in sweep.points
        ]
        head = ["request", "load", "replicas", "requests/s", "P50, ms", "P99, ms", "CPU, µs", "failed", "valid"]
        contents.append(table(head, rows, label=f"Points of the sweep: {label}"))
        contents += second_engine_section.of_points(sweep.points, label)
        if sweep.partial:
            contents.append(element("p", "The sweep was interrupted.", class_="invalid"))
        if sweep.payloads:
            forms: list[list[Content]] = [
                [
                    f"{cost.form}, {_rows(cost.rows)}",
                    *(quantity(figure) for figure in (cost.size, cost.write, cost.read)),
                ]
                for cost in sweep.payloads
            ]
            head = ["form of the payload", "size", "CPU to make it", "CPU to read it"]
            contents.append(table(head, forms, label=f"Costs of the payload's forms: {label}"))
    return contents


def _by_load(points: Sequence[Point], load: Callable[[Point], float | None], name: str) -> list[Html]:
    """Return charts of tail latency and throughput over load.

    Each line stands for one server and one number of rows, or one protocol if all points have the same number of rows.
    """
    loaded = [point for point in points if load(point) is not None]
    values = sorted({value for point in loaded if (value := load(point)) is not None})
    if len(values) < 2:
        return []
    groups = _groups(loaded)
    axis = Axis(name, values, "log" if values[0] > 0 and values[-1] / values[0] > 30 else "linear")
    load_name = name.partition(",")[0]
    note = (
        "The largest of all protocols." if len({point.protocol for point in loaded}) > 1 and len(groups) > 1 else None
    )

    def picture(title: str, figure: Callable[[Point], float | None], unit: str, *, log: bool = False) -> Html:
        lines = [Line(label, _at(values, group, load, figure)) for label, group in groups.items()]
        return chart(f"{title} by {load_name}", axis, lines, unit=unit, log=log, note=note, spans_gaps=True)

    return [
        picture("P99", lambda point: point.p99_ms, "ms", log=True),
        picture("Throughput", lambda point: point.throughput, "requests/s"),
    ]


def _by_rows(points: Sequence[Point]) -> list[Html]:
    """Return a chart of the maximum throughput in rows per second over the number of rows per request.

    It has one line per server and protocol.
    """
    fixed = [point for point in points if point.rows.isdigit()]
    values = sorted({float(point.rows) for point in fixed})
    if len(values) < 2:
        return []
    lines = [
        Line(name, _at(values, group, lambda point: float(point.rows), _rows_per_s))
        for name, group in _by_server_and_protocol(fixed).items()
    ]
    return [
        chart(
            "Throughput by rows of a request",
            Axis("rows", values, "log"),
            lines,
            unit="rows/s",
            note="The largest of all loads.",
        )
    ]


def _by_protocol(points: Sequence[Point]) -> list[Html]:
    """Return a chart of the client's CPU time per request over the number of rows per request.

    It has one line per server and protocol.
    """
    fixed = [point for point in points if point.rows.isdigit()]
    values = sorted({float(point.rows) for point in fixed})
    if len({point.protocol for point in fixed}) < 2 or len(values) < 2:
        return []
    lines = []
    for name, group in _by_server_and_protocol(fixed).items():
        cells: list[float | None] = []
        for value in values:
            costs = [point.cpu_us for point in group if float(point.rows) == value and point.cpu_us is not None]
            cells.append(sum(costs) / len(costs) if costs else None)
        lines.append(Line(name, cells))
    return [
        chart(
            "CPU of the client by protocol",
            Axis("rows", values, "log"),
            lines,
            unit="µs",
            note="For each request, in the mean of all loads.",
            spans_gaps=True,
        )
    ]


def _rows(rows: str) -> str:
    return "1 row" if rows == "1" else f"{rows} rows"


def _rows_per_s(point: Point) -> float | None:
    return None if point.throughput is None else point.throughput * int(point.rows)


def _groups(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points grouped by server and rows, in ascending order, or by protocol if all have the same rows."""
    has_rows = len({point.rows for point in points}) > 1
    has_protocols = not has_rows and (
        len({point.protocol for point in points}) > 1 or not any(point.server for point in points)
    )
    groups: dict[str, list[Point]] = {}
    for point in sorted(
        points, key=lambda point: (point.server, int(point.rows) if point.rows.isdigit() else 0, point.protocol)
    ):
        parts = (point.server, _rows(point.rows) if has_rows else "", point.protocol if has_protocols else "")
        groups.setdefault(", ".join(filter(None, parts)) or _OTHERS, []).append(point)
    return groups


def _by_server_and_protocol(points: Sequence[Point]) -> dict[str, list[Point]]:
    groups: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: (point.server, point.protocol)):
        groups.setdefault(", ".join(filter(None, (point.server, point.protocol))), []).append(point)
    return groups


def _at(
    values: Sequence[float],
    group: Sequence[Point],
    coordinate: Callable[[Point], float | None],
    figure: Callable[[Point], float | None],
) -> list[float | None]:
    """Return the maximum of a figure in the group at each value of an axis; None if the group has no point there."""
    largest: dict[float, float] = {}
    for point in group:
        position, value = coordinate(point), figure(point)
        if position is not None and value is not None:
            largest[position] = max(value, largest.get(position, value))
    return [largest.get(value) for value in values]
