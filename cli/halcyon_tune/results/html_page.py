"""HTML page with the result of a tuning run, made by the renderer of `halcyon report`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from halcyon_measure.report.chart import Axis, Line, chart
from halcyon_measure.report.html_document import data_section, html_document
from halcyon_measure.report.markup import Content, Html, element, facts, joined, section, table
from halcyon_measure.results.number_text import number, significant
from halcyon_tune.patch import command
from halcyon_tune.results.text_page import summary
from halcyon_tune.results.tune_result import FrontPoint, TuneResult

_MS = 1000.0


def html_page(result: TuneResult, namespace: str, *, created_at: str, library: str, library_style: str) -> str:
    """Return the HTML page with the result of a tuning run.

    `created_at` is the time of the result. `library` is the source of uPlot, which may be empty.
    """
    sections = [
        element("section", _answer(result), aria_label="Answer", class_="lead"),
        _change(result, namespace),
        _front(result),
        _steps(result),
        _left_out(result),
        data_section(
            [(f"{result.name}-tune.json", result.document())],
            element("p", "This page contains the whole result, as ", element("code", "-o json"), " prints it."),
        ),
    ]
    return html_document(
        sections,
        title=result.name,
        command="halcyon tune",
        time_text=created_at,
        library=library,
        library_style=library_style,
    )


def _answer(result: TuneResult) -> Html:
    pairs = list(summary(result))
    parts = [element("p", f"{pairs[0][1][:1].upper()}{pairs[0][1][1:]}.", class_="answer")]
    aim = f"Least {result.minimise} within {significant(_MS * result.objective_s, 4)} ms."
    parts.append(element("p", aim, class_="verdict"))
    parts.append(facts([(label.capitalize(), text) for label, text in pairs[1:]]))
    if result.canary is not None:
        parts.append(element("p", f"Canary: {result.canary.get('end')}: {result.canary.get('why')}."))
    return joined(parts)


def _change(result: TuneResult, namespace: str) -> Html:
    if not result.change:
        return Html("")
    return section(
        "Change", element("p", element("code", command(result.name, namespace, result.change))), anchor="change"
    )


def _front(result: TuneResult) -> Html:
    """Return a chart and a table of the measurements, in which the measurements on the Pareto front are marked."""
    if not result.measured:
        return Html("")
    front = set(result.front)
    axis = Axis("rate, requests/s", [point.rate_rps for point in result.measured])
    lines = [
        Line(
            "no other point is better in both", [_p99(point) if point in front else None for point in result.measured]
        ),
        Line("others", [None if point in front else _p99(point) for point in result.measured]),
    ]
    rows: list[Sequence[Content]] = [
        [point.configuration.text(), number(point.rate_rps), number(_p99(point)), "yes" if point in front else ""]
        for point in result.measured
    ]
    head = ["configuration", "requests/s", "P99, ms", "no other is better"]
    return section(
        "Rate and P99",
        element("div", chart("P99 by rate", axis, lines, unit="ms", spans_gaps=True), class_="charts"),
        table(head, rows, label="Measured points"),
        anchor="front",
    )


def _p99(point: FrontPoint) -> float:
    return _MS * point.p99_s


def _steps(result: TuneResult) -> Html:
    contents: list[Content] = []
    for step in result.steps:
        contents.append(element("h3", f"{step.number}. {step.title}"))
        contents.append(element("ul", [element("li", sentence) for sentence in step.findings], class_="evidence"))
    return section("Steps", contents, anchor="steps")


def _left_out(result: TuneResult) -> Html:
    pairs = [(entry.field, entry.why) for entry in result.space.left_out]
    notes = element("ul", [element("li", note) for note in result.notes], class_="evidence") if result.notes else None
    return section("What stays as it is", facts(pairs), notes, anchor="left-out")
