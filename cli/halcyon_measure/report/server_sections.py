"""Report sections about the server: phases, hardware, batches, energy and cold start. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.figure import Figure
from halcyon_measure.results.number_text import NONE, interval, number, quantity
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
    known = [(run.label, run.document.phases) for run in runs if run.document.phases is not None]
    if not known:
        return Html("")
    longest = max((found.total.value or found.end_to_end.value or 0 for _, found in known), default=0)
    bars = [_bar(label if len(known) > 1 else "", found, longest) for label, found in known[:MAX_BARS]]
    contents: list[Content] = [element("div", bars, class_="bars")]
    if len(bars) < len(known):
        contents.append(element("p", f"The bars of the first {len(bars)} of {len(known)} runs.", class_="quiet"))
    if len(known) == 1:
        contents.append(_parts(known[0][1]))
    else:
        names = list(dict.fromkeys(part.name for _, found in known for part in found.parts))
        rows = []
        for label, found in known:
            means = {part.name: part.mean for part in found.parts}
            rows.append(
                [
                    label,
                    *(number(means[name].value) if name in means else NONE for name in names),
                    number(found.total.value),
                ]
            )
        contents.append(table(["run, ms", *map(_plain, names), "sum"], rows, label="Phases of all runs"))
    notes = {found.reason for _, found in known if found.reason}
    contents += [element("p", note, class_="quiet") for note in sorted(notes)]
    contents.append(
        element(
            "p",
            "The client times each request; parts of the balancer and the server are means from their counters over the run.",
            class_="quiet",
        )
    )
    return section("Phases", contents, anchor="phases")


def _bar(label: str, found: Phases, longest: float) -> Html:
    parts = []
    for part in found.parts:
        mean = part.mean.value
        if not mean or mean < 0 or not longest:
            continue
        share = 100 * mean / longest
        said = f"{_plain(part.name)} {number(mean)}"
        parts.append(
            element(
                "span",
                said if share > 12 else "",
                class_=f"phase {part.name}",
                style=f"width:{share:.3f}%",
                title=f"{said} ms",
            )
        )
    spoken = ", ".join(f"{_plain(part.name)} {number(part.mean.value)} ms" for part in found.parts if part.mean.value)
    return element(
        "div",
        element("span", label, class_="bar-name") if label else None,
        element("div", parts, class_="bar", role="img", aria_label=f"{label}: {spoken}".removeprefix(": ")),
        class_="bar-row",
    )


def _parts(found: Phases) -> Html:
    total = found.total.value or 0
    rows: list[list[Content]] = []
    for part in found.parts:
        share = f"{100 * part.mean.value / total:.0f} %" if part.mean.value is not None and total else NONE
        mean: Content = number(part.mean.value) if part.mean.value is not None else quantity(part.mean)
        swatch = element("span", class_=f"swatch phase {part.name}")
        rows.append([[swatch, _plain(part.name)], mean, share, number(part.p99.value), part.side])
    rows.append(["sum", number(found.total.value), "100 %" if total else NONE, "", ""])
    rows.append(["end to end", _with_interval(found.end_to_end), "", "", "client"])
    return table(["part", "mean, ms", "share", "P99, ms", "measured by"], rows, label="Phases of a request", sums=2)


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _with_interval(figure: Figure) -> Content:
    if figure.value is None:
        return quantity(figure)
    return [number(figure.value), element("small", f" {interval(figure)}") if figure.interval else None]


def hardware(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on the use of GPUs, CPU and memory."""
    known = [(run.label, run.document.hardware) for run in runs if run.document.hardware is not None]
    contents: list[Content] = []
    for label, found in known:
        contents += [element("h3", label) if len(known) > 1 else None, *_hardware(found)]
    batches = [(run.label, run.document.batches) for run in runs if run.document.batches is not None]
    for label, sizes in batches:
        contents += [element("h3", f"Batches: {label}" if len(batches) > 1 else "Batches"), *_batches(sizes)]
    return section("Hardware and batches", contents, anchor="hardware")


def _hardware(found: Hardware) -> list[Content]:
    rows: list[list[Content]] = []
    missing: dict[str, list[str]] = {}
    for name, said in _SERIES:
        series: Series = getattr(found, name)
        if series.mean.value is None:
            missing.setdefault(series.mean.reason, []).append(said)
            continue
        rows.append(
            [f"{said}, {_unit(series.mean)}", *(_scaled(getattr(series, one)) for one in ("mean", "p10", "p90", "max"))]
        )
    single: list[tuple[str, Content]] = []
    for name, said in _SINGLE:
        figure: Figure = getattr(found, name)
        if figure.value is None:
            missing.setdefault(figure.reason, []).append(said)
        else:
            single.append((said, f"{_scaled(figure)} {_unit(figure)}".strip()))
    contents: list[Content] = []
    if rows:
        contents.append(
            table(["sampled once a second", "mean", "P10", "P90", "max"], rows, label="Hardware over the run")
        )
    contents.append(facts(single))
    contents.append(_missing(missing))
    contents.append(element("div", _over_time(found), class_="charts"))
    if len(found.replicas) > 1 or any(replica.replaced for replica in found.replicas):
        replicas = [
            [
                one.pod + (" (replaced)" if one.replaced else ""),
                number(one.requests.value),
                number(one.queue.value),
                number(one.model.value),
            ]
            for one in found.replicas
        ]
        contents.append(table(["replica", "requests", "queue, ms", "model, ms"], replicas, label="Replicas"))
    contents += [element("p", note, class_="quiet") for note in found.notes]
    return contents


def _over_time(found: Hardware) -> list[Html]:
    """Return one chart with all utilisations, and one chart for each other sampled quantity."""
    charts = []
    shares = [(said, getattr(found, name)) for name, said in _SERIES if getattr(found, name).mean.unit == "ratio"]
    count = max((len(one.values) for _, one in shares), default=0)
    if count > 1:
        lines = [Line(said, _thinned(one.values, count, 100)) for said, one in shares if one.values]
        charts.append(chart("Utilisation over time", _samples(count), lines, unit="%"))
    for name, said in _SERIES:
        one: Series = getattr(found, name)
        count = len(one.values)
        if one.mean.unit != "ratio" and count > 1:
            line = Line(said, _thinned(one.values, count, 1 / 2**20 if one.mean.unit == "bytes" else 1))
            charts.append(chart(f"{said} over time", _samples(count), [line], unit=_unit(one.mean)))
    return charts


def _thinned(values: Sequence[float], count: int, scale: float) -> list[float | None]:
    """Return the maximum of each span of `count` samples; None for spans after the end of the samples."""
    span = _span(count)
    found: list[float | None] = [max(values[at : at + span]) * scale for at in range(0, len(values), span)]
    return found + [None] * (-(-count // span) - len(found))


def _samples(count: int) -> Axis:
    span = _span(count)
    name = "sample, about one a second" if span == 1 else f"sample, the largest of {span}"
    return Axis(name, [float(at) for at in range(0, count, span)], "time")


def _span(count: int) -> int:
    return -(-count // MAX_POINTS)


def _batches(found: Batches) -> list[Content]:
    rows = [
        [
            number(size.rows),
            number(size.executions),
            *(number(one.value) for one in (size.input, size.model, size.output)),
        ]
        for size in found.sizes
    ]
    contents: list[Content] = []
    if rows:
        contents.append(
            table(
                ["rows", "executions", "input, ms", "model, ms", "output, ms"], rows, label="Executions by batch size"
            )
        )
    line = None
    if found.constant.value is not None and found.per_row.value is not None:
        sign = "-" if found.per_row.value < 0 else "+"
        law = f"{number(found.constant.value)} {sign} {number(abs(found.per_row.value))} b ms"
        line = f"{law}, within {quantity(found.line_error)}"
    contents.append(
        facts(
            [
                ("Execution of b rows", line),
                ("Mean rows", quantity(found.mean_rows)),
                ("Largest batch", quantity(found.largest)),
                ("Fill", quantity(found.fill)),
                ("Time an instance was busy", quantity(found.busy)),
                ("Instances", quantity(found.instances)),
            ]
        )
    )
    return contents


def _missing(missing: dict[str, list[str]]) -> Html:
    items = [element("li", f"{', '.join(names)}: not measured: {reason}") for reason, names in missing.items()]
    return element("ul", items, class_="quiet") if items else Html("")


def energy(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on energy, carbon and cost of an inference."""
    known = [(run.label, run.document.energy) for run in runs if run.document.energy is not None]
    if not known:
        return Html("")
    if len(known) == 1:
        return section("Energy", _energy(known[0][1]), anchor="energy")
    columns = {
        "per_inference": "J for each inference",
        "net_per_inference": "without idle power",
        "carbon_per_inference": "mg CO₂ for each inference",
        "cost_per_thousand": "cost of 1,000",
    }
    rows, missing = [], dict[str, list[str]]()
    for label, found in known:
        figures = [getattr(found, name) for name in columns]
        rows.append([label, *(number(figure.value) for figure in figures)])
        for said, figure in zip(columns.values(), figures, strict=True):
            if figure.value is None and said not in missing.setdefault(figure.reason, []):
                missing[figure.reason].append(said)
    head = ["run", *columns.values()]
    return section("Energy", table(head, rows, label="Energy of all runs"), _missing(missing), anchor="energy")


def _energy(found: Energy) -> list[Content]:
    pairs: list[tuple[str, Content]] = []
    missing: dict[str, list[str]] = {}
    for name, said in _ENERGY:
        figure: Figure = getattr(found, name)
        if figure.value is None:
            missing.setdefault(figure.reason, []).append(said)
            continue
        source = element("small", f" {figure.source}") if figure.source else None
        pairs.append((said, [quantity(figure), f" {interval(figure)}" if figure.interval else None, source]))
    return [facts(pairs), _missing(missing)]


def cold_start(runs: Sequence[LabelledRun]) -> Html:
    """Return the section on how long new replicas took until their first answer."""
    contents: list[Content] = []
    known = [(run.label, run.document.cold_start) for run in runs if run.document.cold_start is not None]
    for label, found in known:
        contents += [element("h3", label) if len(known) > 1 else None, *_starts(found)]
    return section("Cold start", contents, anchor="cold-start")


def _starts(found: ColdStart) -> list[Content]:
    rows: list[list[Content]] = [
        [_plain(part.name), *(number(one.value) for one in (part.mean, part.least, part.most))] for part in found.parts
    ]
    rows.append(["to the first answer", _with_interval(found.total), "", ""])
    contents: list[Content] = [
        table([f"{found.starts} starts, s", "mean", "least", "most"], rows, label="Parts of a cold start", sums=1)
    ]
    if found.first_executions:
        first = [[number(one.rows), number(one.first.value), number(one.later.value)] for one in found.first_executions]
        contents.append(table(["rows", "first execution, ms", "later, ms"], first, label="First executions"))
    contents += [element("p", note, class_="quiet") for note in found.notes]
    return contents


def _scaled(figure: Figure) -> str:
    if figure.value is None:
        return NONE
    if figure.unit == "bytes":
        return number(figure.value / 2**20)
    return number(100 * figure.value) if figure.unit == "ratio" else number(figure.value)


def _unit(figure: Figure) -> str:
    return {"bytes": "MiB", "ratio": "%"}.get(figure.unit, figure.unit)
