"""Report sections about the model itself: counts of its graph, roofline, and measurements without a server. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.number_text import count_text, number, quantity
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.roofline import Roofline
from halcyon_measure.results.sections.static import Static

MAX_OPERATORS = 12
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def on_paper(runs: Sequence[LabelledRun]) -> Html:
    """Return the operations and bytes of the model, its roofline, and its measurement without a server.

    Runs of the same model share one section.
    """
    contents: list[Content] = []
    seen: set[str] = set()
    for run in runs:
        document = run.document
        parts = (
            ("Counted from the graph", None if document.static is None else _static(document.static)),
            ("Roofline", None if document.roofline is None else _roofline(document.roofline)),
            ("Without a server", None if document.alone is None else _alone(document.alone)),
        )
        for heading, inner in parts:
            if inner is None:
                continue
            key = "".join(map(str, inner))
            if key not in seen:
                seen.add(key)
                contents += [element("h3", f"{heading}: {run.label}" if len(runs) > 1 else heading), *inner]
    return section("Model on paper", contents, anchor="paper")


def _static(static: Static) -> list[Content]:
    rows: list[list[Content]] = [
        [
            number(size.batch),
            _scaled(size.macs),
            _scaled(size.flops),
            _scaled(size.least_bytes),
            _scaled(size.unfused_bytes),
            _scaled(size.peak_activation_bytes),
        ]
        for size in static.sizes
    ]
    head = ["rows", "MACs", "FLOPs", "bytes, least", "bytes, unfused", "activations, most at a time"]
    contents: list[Content] = [
        facts([
            ("File", static.file),
            ("Parameters", None if static.parameters is None else f"{_scaled(static.parameters)} {static.datatype}"),
            ("Constants", None if static.weight_bytes is None else f"{_scaled(static.weight_bytes)}B"),
            ("Operators of", ", ".join(static.opsets)),
            ("Dimensions", ", ".join(f"{dimension.name} = {dimension.size}" for dimension in static.dimensions)),
        ])
    ]  # fmt: skip
    if rows:
        contents.append(table(head, rows, label="Operations and bytes by batch size"))
        contents.append(_operators(static))
    if static.uncounted:
        items = [
            element("li", f"{operator.operator}, {count_text(operator.nodes, 'node')}: {operator.reason}")
            for operator in static.uncounted
        ]
        contents.append(
            element("details", element("summary", "Operators that add no operations"), element("ul", items))
        )
    if not static.complete:
        contents.append(element("p", "An operator is unknown, so these are least counts.", class_="quiet"))
    return contents


def _operators(static: Static) -> Html:
    size = static.sizes[0]
    rows = [
        [
            operator.operator,
            number(operator.nodes),
            _scaled(operator.flops),
            f"{100 * operator.flops / size.flops:.1f} %" if size.flops else "-",
        ]
        for operator in size.operators[:MAX_OPERATORS]
    ]
    return table([f"operator, {size.batch} rows", "nodes", "FLOPs", "share"], rows, label="Operations by operator")


def _roofline(roofline: Roofline) -> list[Content]:
    peaks = [
        (f"Peak of compute, {roofline.datatype}", roofline.compute, "FLOP/s"),
        ("Peak of memory", roofline.memory, "B/s"),
    ]
    contents: list[Content] = [
        element("p", roofline.answer),
        facts([
            *((name, f"{_scaled(peak.rate.value)}{unit}, {peak.kind}: {peak.how}") for name, peak, unit in peaks),
            ("Compute limits above", f"{number(roofline.ridge)} FLOP/B"),
        ]),
    ]  # fmt: skip
    compute, memory = roofline.compute.rate.value, roofline.memory.rate.value
    if compute and memory and roofline.points:
        measured = {point.intensity: point for point in roofline.points}
        intensities = sorted({*measured, roofline.ridge, roofline.ridge * 8, min([*measured, roofline.ridge]) / 2})
        axis = Axis("FLOP/B", intensities, "log")
        lines = [
            Line("roof", [min(compute, intensity * memory) / 1e9 for intensity in intensities]),
            Line(
                "measured",
                [_giga(measured[intensity].rate.value) if intensity in measured else None for intensity in intensities],
            ),
        ]
        contents.append(chart("Roofline", axis, lines, unit="GFLOP/s", log=True, spans_gaps=True))
        rows: list[list[Content]] = [
            [number(point.batch), number(point.intensity), _scaled(point.rate.value), _scaled(point.roof), quantity(point.share), point.bound, point.source]
            for point in roofline.points
        ]  # fmt: skip
        head = ["rows", "FLOP/B", "FLOP/s", "roof, FLOP/s", "share of the roof", "bound by", "of"]
        contents.append(table(head, rows, label="Points below the roof"))
    if roofline.above:
        sizes = ", ".join(map(str, roofline.above))
        contents.append(element("p", f"The roof is wrong: batches of {sizes} rows are above it.", class_="invalid"))
    return contents


def _alone(alone: Alone) -> list[Content]:
    rows: list[list[Content]] = [
        [number(point.batch), *(number(figure.value) for figure in (point.mean, point.p50, point.p99, point.rate))]
        for point in alone.points
    ]
    contents: list[Content] = [
        facts([
            ("Library", f"{alone.library}, {count_text(alone.threads, 'thread')}"),
            ("Loading", quantity(alone.load)),
            ("Memory", f"{_scaled(alone.memory.value)}B" if alone.memory.value is not None else quantity(alone.memory)),
            ("What the server adds to the median", quantity(alone.server_cost)),
        ])
    ]  # fmt: skip
    if rows:
        head = ["rows", "mean, ms", "P50, ms", "P99, ms", "rows/s"]
        contents.append(table(head, rows, label="The model without a server"))
    return contents


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _scaled(value: float | None) -> str:
    """Return a large number with a decimal prefix, for example 4.09 G."""
    for scale, prefix in _SCALES:
        if value is not None and value >= scale:
            return f"{number(value / scale)}\u00a0{prefix}"
    return number(value)
