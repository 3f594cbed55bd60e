"""The sections of a document as text."""

from __future__ import annotations

from typing import Any

from halcyon_measure.breakdown import cold_start
from halcyon_measure.breakdown.cold_start import Boundaries
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.figure import Figure, unmeasured
from halcyon_measure.results.sections import section_text
from halcyon_measure.results.sections.phases import Phase, Phases


def part(name: Any, value: float | None, reason: str = "") -> Phase:
    figure = Figure(value=value, unit="ms", n=10, source="x", reason=reason)
    return Phase(name=name, side="client", mean=figure, p99=unmeasured("ms", reason))


def section(*parts: Phase, reason: str = "") -> Phases:
    latency = Figure(value=20.0, unit="ms", n=10, source="x")
    return Phases(end_to_end=latency, parts=parts, total=latency, adds_up=not reason, reason=reason)


def test_parts_are_rows_with_their_share() -> None:
    lines = section_text.phases(section(part("late", 0.0), part("model", 15.0), part("rest", 5.0)))
    assert lines == [
        "phase            ms   share",
        "model         15.00   75.0%  ##################",
        "rest           5.00   25.0%  ######",
        "latency       20.00  on average; the parts add up",
    ]


def test_unmeasured_parts_share_the_line_of_their_reason() -> None:
    lines = section_text.phases(section(part("queue", None, "closed"), part("model", None, "closed")))
    assert lines[-1] == "not measured: queue, model: closed"


def test_parts_that_do_not_add_up_have_the_reason() -> None:
    lines = section_text.phases(section(part("model", 90.0), reason="the counters include other requests"))
    assert lines[-2:] == [
        "latency       20.00  on average; the parts do NOT add up",
        "the counters include other requests",
    ]


def test_starts_have_a_line_with_their_parts() -> None:
    starts = cold_start.build([Boundaries("a", 0.0, bound=0.5, first_container=2.0, ready=9.0)])
    document = BenchDocument.model_construct(batches=None, hardware=None, energy=None, cold_start=starts)
    assert section_text.details(document) == [
        "start     9.0 s on average of 1: scheduling 0.5, pulling 1.5, warm up 7.0"
    ]
