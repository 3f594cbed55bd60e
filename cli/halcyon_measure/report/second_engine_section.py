"""Report section about a second load engine: its figures next to those of Halcyon's engine. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from halcyon_measure.report.labels import LabelledRun
from halcyon_measure.report.markup import Content, Html, element, facts, section, table
from halcyon_measure.results.number_text import number, signed_percent
from halcyon_measure.results.sections.second_engine import SecondEngine
from halcyon_measure.results.sections.sweep import SweepPoint


def second_engine(runs: Sequence[LabelledRun]) -> Html:
    """Return the section with the figures of both engines for each run that isn't a sweep."""
    contents: list[Content] = []
    judged = [
        (run.label, run.document.second_engine)
        for run in runs
        if run.document.second_engine is not None and run.document.sweep is None
    ]
    for label, engine in judged:
        contents += [element("h3", label) if len(judged) > 1 else None, *_engine(engine, label)]
    return section("Second engine", contents, anchor="second-engine")


def _engine(engine: SecondEngine, label: str) -> list[Content]:
    contents: list[Content] = [element("p", engine.sentence, class_="invalid" if engine.reason else None)]
    if not engine.reason:
        rows = [
            [
                name,
                number(entry.halcyon.value),
                number(entry.halcyon.n),
                number(entry.other.value),
                number(entry.other.n),
                number(entry.difference.value),
                signed_percent(entry.relative.value),
            ]
            for name, entry in engine.rows()
        ]
        head = ["from send", "halcyon", "requests", engine.engine, "requests", "difference", "difference, %"]
        contents.append(table(head, rows, label=f"Figures of both engines: {label}"))
    contents.append(
        facts([
            ("Load", engine.load),
            ("Sent late", None if engine.delayed is None else number(engine.delayed)),
            ("Limits", "; ".join(engine.limits)),
            ("Arguments", element("code", shlex.join(engine.arguments)) if engine.arguments else None),
        ])
    )  # fmt: skip
    return contents


def of_points(points: Sequence[SweepPoint], label: str) -> list[Content]:
    """Return a table with the figures of the second engine at the points of a sweep; empty if there are none."""
    judged = [(point, point.second_engine) for point in points if point.second_engine is not None]
    if not judged:
        return []
    rows: list[list[Content]] = [
        [
            point.load_text,
            *(
                text
                for entry in (engine.throughput, engine.p50, engine.p99)
                for text in (number(entry.other.value), signed_percent(entry.relative.value))
            ),
            engine.reason or "-",
        ]
        for point, engine in judged
    ]
    name = judged[0][1].engine
    head = [name, "requests/s", "difference", "P50, ms", "difference", "P99, ms", "difference", "reason for no result"]
    return [table(head, rows, label=f"Points of the sweep, measured by {name}: {label}")]
