"""A result as text: its width, its numbers, and failures that are too many to list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halcyon_measure.protocols.reply import Outcome
from halcyon_measure.report.labels import labelled
from halcyon_measure.report.load_sections import failures
from halcyon_measure.results import text
from halcyon_measure.results.document import BenchDocument
from halcyon_measure.results.number_text import number
from tests.bench_documents import bench_document, bench_run, document_of, stored


def many_kinds() -> BenchDocument:
    """Return a result with 30 kinds of failures, each of one request."""
    run = bench_run()
    run.columns.outcome[:30] = Outcome.ERROR
    run.columns.kind[:30] = np.arange(30)
    return document_of(replace(run, messages=tuple(f"500: error {kind}" for kind in range(30))))


@pytest.mark.parametrize("sections", [False, True])
def test_no_line_is_wider_than_80_columns(sections: bool) -> None:
    document = bench_document(sections=sections, model="a model with a long name " * 3, failures=9)
    assert [line for line in text.page(document).splitlines() if len(line) > 80] == []


def test_phases_longer_than_the_latency_stay_within_the_page() -> None:
    document = bench_document(sections=True)
    phases = document.phases
    assert phases is not None
    short = phases.end_to_end.model_copy(update={"value": 0.5})
    wrong = phases.model_copy(update={"end_to_end": short, "adds_up": False, "reason": "the counters include others"})
    page = text.page(document.model_copy(update={"phases": wrong}))
    assert "do NOT add up" in page
    assert [line for line in page.splitlines() if len(line) > 80] == []


def test_numbers_are_those_of_every_view() -> None:
    document = bench_document()
    assert f"p50 {number(document.latency.p50.value)} ms" in " ".join(text.page(document).split())


def test_failures_beyond_the_list_are_counted() -> None:
    document = many_kinds()
    assert (len(document.failures), document.unlisted_failures) == (20, 10)
    assert "failure   10 x other messages, which are too many to list" in text.page(document)
    assert "other messages, which are too many to list" in failures(labelled(stored(document)))
    assert "other messages" not in text.page(bench_document(failures=9))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0033, "0.0033"), (0.0148, "0.0148"), (0.9764, "0.976"), (0.05, "0.05"), (1.234, "1.23"), (123.4, "123")],
)
def test_numbers_have_at_least_two_significant_digits(value: float, shown: str) -> None:
    assert number(value) == shown
