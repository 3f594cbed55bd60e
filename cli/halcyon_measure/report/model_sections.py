"""Report sections about the model itself: counts of its graph, roofline, and measurements without a server. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.number_text import number, quantity
from halcyon_measure.results.sections.alone import Alone
from halcyon_measure.results.sections.roofline import Roofline
from halcyon_measure.results.sections.static import Static

MAX_OPERATORS = 12
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def on_paper(runs: Sequence[LabelledRun]) -> Html:
    """Return operations and bytes of the model, its roofline, and its measurement without a server.

    Runs of the same model share one.
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


def _static(found: Static) -> list[Content]:
    rows: list[list[Content]] = [
        [
            number(size.batch),
            _scaled(size.macs),
            _scaled(size.flops),
            _scaled(size.least_bytes),
            _scaled(size.unfused_bytes),
            _scaled(size.peak_activation_bytes),
        ]
        for size in found.sizes
    ]
    head = ["rows", "MACs", "FLOPs", "bytes, least", "bytes, unfused", "activations, most at a time"]
    contents: list[Content] = [
        facts([
            ("File", found.file),
            ("Parameters", None if found.parameters is None else f"{_scaled(found.parameters)} {found.datatype}"),
            ("Constants", None if found.weight_bytes is None else f"{_scaled(found.weight_bytes)}B"),
            ("Operators of", ", ".join(found.opsets)),
            ("Dimensions", ", ".join(f"{one.name} = {one.size}" for one in found.dimensions)),
        ])
    ]  # fmt: skip
    if rows:
        contents.append(table(head, rows, label="Operations and bytes by batch size"))
        contents.append(_operators(found))
    if found.uncounted:
        items = [element("li", f"{one.operator}, {one.nodes} nodes: {one.reason}") for one in found.uncounted]
        contents.append(
            element("details", element("summary", "Operators that add no operations"), element("ul", items))
        )
    if not found.complete:
        contents.append(element("p", "An operator is unknown, so these are least counts.", class_="quiet"))
    return contents


def _operators(found: Static) -> Html:
    size = found.sizes[0]
    rows = [
        [
            one.operator,
            number(one.nodes),
            _scaled(one.flops),
            f"{100 * one.flops / size.flops:.1f} %" if size.flops else "-",
        ]
        for one in size.operators[:MAX_OPERATORS]
    ]
    return table([f"operator, {size.batch} rows", "nodes", "FLOPs", "share"], rows, label="Operations by operator")


def _roofline(found: Roofline) -> list[Content]:
    peaks = [
        (f"Peak of compute, {found.datatype}", found.compute, "FLOP/s"),
        ("Peak of memory", found.memory, "B/s"),
    ]
    contents: list[Content] = [
        element("p", found.answer),
        facts([
            *((name, f"{_scaled(peak.rate.value)}{unit}, {peak.kind}: {peak.how}") for name, peak, unit in peaks),
            ("Compute limits above", f"{number(found.ridge)} FLOP/B"),
        ]),
    ]  # fmt: skip
    compute, memory = found.compute.rate.value, found.memory.rate.value
    if compute and memory and found.points:
        measured = {point.intensity: point for point in found.points}
        places = sorted({*measured, found.ridge, found.ridge * 8, min([*measured, found.ridge]) / 2})
        axis = Axis("FLOP/B", places, "log")
        lines = [
            Line("roof", [min(compute, place * memory) / 1e9 for place in places]),
            Line("measured", [_giga(measured[place].rate.value) if place in measured else None for place in places]),
        ]
        contents.append(chart("Roofline", axis, lines, unit="GFLOP/s", log=True, spans_gaps=True))
        rows: list[list[Content]] = [
            [number(one.batch), number(one.intensity), _scaled(one.rate.value), _scaled(one.roof), quantity(one.share), one.bound, one.source]
            for one in found.points
        ]  # fmt: skip
        head = ["rows", "FLOP/B", "FLOP/s", "roof, FLOP/s", "share of the roof", "bound by", "of"]
        contents.append(table(head, rows, label="Points below the roof"))
    if found.above:
        sizes = ", ".join(map(str, found.above))
        contents.append(element("p", f"The roof is wrong: batches of {sizes} rows are above it.", class_="invalid"))
    return contents


def _alone(found: Alone) -> list[Content]:
    rows: list[list[Content]] = [
        [number(one.batch), *(number(figure.value) for figure in (one.mean, one.p50, one.p99, one.rate))]
        for one in found.points
    ]
    contents: list[Content] = [
        facts([
            ("Library", f"{found.library}, {found.threads} threads"),
            ("Loading", quantity(found.load)),
            ("Memory", f"{_scaled(found.memory.value)}B" if found.memory.value is not None else quantity(found.memory)),
            ("What the server adds to the median", quantity(found.server_cost)),
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
