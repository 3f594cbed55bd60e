"""Report sections about the server: phases, hardware, batches, energy and cold start. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, count_text, interval, number, quantity
from halcyon_measure.results.sections.batches import Batches
from halcyon_measure.results.sections.cold_start import ColdStart
from halcyon_measure.results.sections.energy import Energy
from halcyon_measure.results.sections.hardware import Hardware, Series
from halcyon_measure.results.sections.phases import Phases

MAX_BARS = 24
MAX_POINTS = 240
"""Maximum number of points in a chart over time. In longer runs, a point covers several samples."""
_ENERGY = (
    ("per_inference", "Energy of an inference"),
    ("net_per_inference", "without idle power"),
    ("gpu", "GPUs in the run"),
    ("cpu", "CPU in the run"),
    ("idle_power", "Idle power"),
    ("carbon_per_inference", "CO₂ of an inference"),
    ("carbon_intensity", "CO₂ of a kWh"),
    ("cost_per_thousand", "Cost of 1,000 inferences"),
    ("price_per_hour", "Price of the replicas"),
)
_SERIES = (
    ("gpu_utilization", "GPU utilisation"),
    ("gpu_memory", "GPU memory"),
    ("gpu_power", "GPU power"),
    ("pinned_memory", "Pinned memory of Triton"),
    ("server_cpu", "CPU of the servers"),
    ("server_memory", "Memory of the servers"),
    ("balancer_cpu", "CPU of the balancers"),
    ("machine_cpu", "CPU of the machines"),
    ("machine_memory", "Memory of the machines"),
)
_SINGLE = (
    ("gpu_at_80", "Time with GPUs at 80 to 100 %"),
    ("gpu_memory_total", "GPU memory in all"),
    ("pinned_memory_total", "Pinned memory in all"),
    ("server_cpu_limit", "CPU limit of the servers"),
    ("server_throttled", "Time throttled by it"),
    ("server_memory_limit", "Memory limit of the servers"),
    ("server_oom_kills", "Processes killed for memory"),
    ("sampling_cpu", "CPU of the sampling itself"),
)


def phases(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on the phases of a request: a stacked bar for each run, and a table."""
    measured = [(run.label, run.document.phases) for run in runs if run.document.phases is not None]
    if not measured:
        return Html("")
    longest = max((breakdown.total.value or breakdown.end_to_end.value or 0 for _, breakdown in measured), default=0)
    bars = [_bar(label if len(measured) > 1 else "", breakdown, longest) for label, breakdown in measured[:MAX_BARS]]
    contents: list[Content] = [element("div", bars, class_="bars")]
    if len(bars) < len(measured):
        contents.append(element("p", f"The bars of the first {len(bars)} of {len(measured)} runs.", class_="quiet"))
    if len(measured) == 1:
        contents.append(_parts(measured[0][1]))
    else:
        names = list(dict.fromkeys(part.name for _, breakdown in measured for part in breakdown.parts))
        rows = []
        for label, breakdown in measured:
            means = {part.name: part.mean for part in breakdown.parts}
            rows.append(
                [
                    label,
                    *(number(means[name].value) if name in means else NONE for name in names),
                    number(breakdown.total.value),
                ]
            )
        contents.append(table(["run, ms", *map(_plain, names), "sum"], rows, label="Phases of all runs"))
    notes = {breakdown.reason for _, breakdown in measured if breakdown.reason}
    contents += [element("p", note, class_="quiet") for note in sorted(notes)]
    contents.append(
        element(
            "p",
            "The client times each request; parts of the balancer and the server are means from their counters over the run.",
            class_="quiet",
        )
    )
    return section("Phases", contents, anchor="phases")


def _bar(label: str, phases: Phases, longest: float) -> Html:
    parts = []
    for part in phases.parts:
        mean = part.mean.value
        if not mean or mean < 0 or not longest:
            continue
        share = 100 * mean / longest
        text = f"{_plain(part.name)} {number(mean)}"
        parts.append(
            element(
                "span",
                text if share > 12 else "",
                class_=f"phase {part.name}",
                style=f"width:{share:.3f}%",
                title=f"{text} ms",
            )
        )
    aria_text = ", ".join(
        f"{_plain(part.name)} {number(part.mean.value)} ms" for part in phases.parts if part.mean.value
    )
    return element(
        "div",
        element("span", label, class_="bar-name") if label else None,
        element("div", parts, class_="bar", role="img", aria_label=f"{label}: {aria_text}".removeprefix(": ")),
        class_="bar-row",
    )


def _parts(phases: Phases) -> Html:
    total = phases.total.value or 0
    rows: list[list[Content]] = []
    for part in phases.parts:
        share = f"{100 * part.mean.value / total:.0f} %" if part.mean.value is not None and total else NONE
        mean: Content = number(part.mean.value) if part.mean.value is not None else quantity(part.mean)
        swatch = element("span", class_=f"swatch phase {part.name}")
        rows.append([[swatch, _plain(part.name)], mean, share, number(part.p99.value), part.side])
    rows.append(["sum", number(phases.total.value), "100 %" if total else NONE, "", ""])
    rows.append(["end to end", _with_interval(phases.end_to_end), "", "", "client"])
    return table(["part", "mean, ms", "share", "P99, ms", "measured by"], rows, label="Phases of a request", sums=2)


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _with_interval(figure: Figure) -> Content:
    if figure.value is None:
        return quantity(figure)
    return [number(figure.value), element("small", f" {interval(figure)}") if figure.interval else None]


def hardware(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on the use of GPUs, CPU and memory."""
    measured = [(run.label, run.document.hardware) for run in runs if run.document.hardware is not None]
    contents: list[Content] = []
    for label, use in measured:
        contents += [element("h3", label) if len(measured) > 1 else None, *_hardware(use)]
    batches = [(run.label, run.document.batches) for run in runs if run.document.batches is not None]
    for label, sizes in batches:
        contents += [element("h3", f"Batches: {label}" if len(batches) > 1 else "Batches"), *_batches(sizes)]
    return section("Hardware and batches", contents, anchor="hardware")


def _hardware(use: Hardware) -> list[Content]:
    rows: list[list[Content]] = []
    missing: dict[str, list[str]] = {}
    for name, label in _SERIES:
        series: Series = getattr(use, name)
        if series.mean.value is None:
            missing.setdefault(series.mean.reason, []).append(label)
            continue
        rows.append(
            [
                f"{label}, {_unit(series.mean)}",
                *(_scaled(getattr(series, statistic)) for statistic in ("mean", "p10", "p90", "max")),
            ]
        )
    single: list[tuple[str, Content]] = []
    for name, label in _SINGLE:
        figure: Figure = getattr(use, name)
        if figure.value is None:
            missing.setdefault(figure.reason, []).append(label)
        else:
            single.append((label, f"{_scaled(figure)} {_unit(figure)}".strip()))
    contents: list[Content] = []
    if rows:
        contents.append(
            table(["sampled once a second", "mean", "P10", "P90", "max"], rows, label="Hardware over the run")
        )
    contents.append(facts(single))
    contents.append(_missing(missing))
    contents.append(element("div", _over_time(use), class_="charts"))
    if len(use.replicas) > 1 or any(replica.replaced for replica in use.replicas):
        replicas = [
            [
                replica.pod + (" (replaced)" if replica.replaced else ""),
                number(replica.requests.value),
                number(replica.queue.value),
                number(replica.model.value),
            ]
            for replica in use.replicas
        ]
        contents.append(table(["replica", "requests", "queue, ms", "model, ms"], replicas, label="Replicas"))
    contents += [element("p", note, class_="quiet") for note in use.notes]
    return contents


def _over_time(use: Hardware) -> list[Html]:
    """Return one chart with all utilisations, and a separate chart for each other sampled quantity."""
    charts = []
    shares = [(label, getattr(use, name)) for name, label in _SERIES if getattr(use, name).mean.unit == "ratio"]
    count = max((len(series.values) for _, series in shares), default=0)
    if count > 1:
        lines = [Line(label, _maxima(series.values, count, 100)) for label, series in shares if series.values]
        charts.append(chart("Utilisation over time", _samples(count), lines, unit="%"))
    for name, label in _SERIES:
        series: Series = getattr(use, name)
        count = len(series.values)
        if series.mean.unit != "ratio" and count > 1:
            line = Line(label, _maxima(series.values, count, 1 / 2**20 if series.mean.unit == "bytes" else 1))
            charts.append(chart(f"{label} over time", _samples(count), [line], unit=_unit(series.mean)))
    return charts


def _maxima(values: Sequence[float], count: int, scale: float) -> list[float | None]:
    """Return the maximum of each span of `count` samples; None for spans after the end of the samples."""
    span = _span(count)
    maxima: list[float | None] = [max(values[begin : begin + span]) * scale for begin in range(0, len(values), span)]
    return maxima + [None] * (-(-count // span) - len(maxima))


def _samples(count: int) -> Axis:
    span = _span(count)
    name = "sample, about one a second" if span == 1 else f"sample, the largest of {span}"
    return Axis(name, [float(begin) for begin in range(0, count, span)], "time")


def _span(count: int) -> int:
    return -(-count // MAX_POINTS)


def _batches(batches: Batches) -> list[Content]:
    rows = [
        [
            number(size.rows),
            number(size.executions),
            *(number(figure.value) for figure in (size.input, size.model, size.output)),
        ]
        for size in batches.sizes
    ]
    contents: list[Content] = []
    if rows:
        contents.append(
            table(
                ["rows", "executions", "input, ms", "model, ms", "output, ms"], rows, label="Executions by batch size"
            )
        )
    line = None
    if batches.constant.value is not None and batches.per_row.value is not None:
        sign = "-" if batches.per_row.value < 0 else "+"
        law = f"{number(batches.constant.value)} {sign} {number(abs(batches.per_row.value))} b ms"
        line = f"{law}, within {quantity(batches.line_error)}"
    contents.append(
        facts(
            [
                ("Execution of b rows", line),
                ("Mean rows", quantity(batches.mean_rows)),
                ("Largest batch", quantity(batches.largest)),
                ("Fill", quantity(batches.fill)),
                ("Time an instance was busy", quantity(batches.busy)),
                ("Instances", quantity(batches.instances)),
            ]
        )
    )
    return contents


def _missing(missing: dict[str, list[str]]) -> Html:
    items = [element("li", f"{', '.join(names)}: not measured: {reason}") for reason, names in missing.items()]
    return element("ul", items, class_="quiet") if items else Html("")


def energy(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on energy, carbon and cost of an inference."""
    measured = [(run.label, run.document.energy) for run in runs if run.document.energy is not None]
    if not measured:
        return Html("")
    if len(measured) == 1:
        return section("Energy", _energy(measured[0][1]), anchor="energy")
    columns = {
        "per_inference": "J for each inference",
        "net_per_inference": "without idle power",
        "carbon_per_inference": "mg CO₂ for each inference",
        "cost_per_thousand": "cost of 1,000",
    }
    rows, missing = [], dict[str, list[str]]()
    for label, consumption in measured:
        figures = [getattr(consumption, name) for name in columns]
        rows.append([label, *(number(figure.value) for figure in figures)])
        for heading, figure in zip(columns.values(), figures, strict=True):
            if figure.value is None and heading not in missing.setdefault(figure.reason, []):
                missing[figure.reason].append(heading)
    head = ["run", *columns.values()]
    return section("Energy", table(head, rows, label="Energy of all runs"), _missing(missing), anchor="energy")


def _energy(energy: Energy) -> list[Content]:
    pairs: list[tuple[str, Content]] = []
    missing: dict[str, list[str]] = {}
    for name, label in _ENERGY:
        figure: Figure = getattr(energy, name)
        if figure.value is None:
            missing.setdefault(figure.reason, []).append(label)
            continue
        source = element("small", f" {figure.source}") if figure.source else None
        pairs.append((label, [quantity(figure), f" {interval(figure)}" if figure.interval else None, source]))
    return [facts(pairs), _missing(missing)]


def cold_start(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on the time that new replicas took until their first answer."""
    contents: list[Content] = []
    measured = [(run.label, run.document.cold_start) for run in runs if run.document.cold_start is not None]
    for label, starts in measured:
        contents += [element("h3", label) if len(measured) > 1 else None, *_starts(starts)]
    return section("Cold start", contents, anchor="cold-start")


def _starts(cold_start: ColdStart) -> list[Content]:
    rows: list[list[Content]] = [
        [_plain(part.name), *(number(figure.value) for figure in (part.mean, part.least, part.most))]
        for part in cold_start.parts
    ]
    rows.append(["to the first answer", _with_interval(cold_start.total), "", ""])
    contents: list[Content] = [
        table(
            [f"{count_text(cold_start.starts, 'start')}, s", "mean", "least", "most"],
            rows,
            label="Parts of a cold start",
            sums=1,
        )
    ]
    if cold_start.first_executions:
        first = [
            [number(execution.rows), number(execution.first.value), number(execution.later.value)]
            for execution in cold_start.first_executions
        ]
        contents.append(table(["rows", "first execution, ms", "later, ms"], first, label="First executions"))
    contents += [element("p", note, class_="quiet") for note in cold_start.notes]
    return contents


def _scaled(figure: Figure) -> str:
    if figure.value is None:
        return NONE
    if figure.unit == "bytes":
        return number(figure.value / 2**20)
    return number(100 * figure.value) if figure.unit == "ratio" else number(figure.value)


def _unit(figure: Figure) -> str:
    return {"bytes": "MiB", "ratio": "%"}.get(figure.unit, figure.unit)
