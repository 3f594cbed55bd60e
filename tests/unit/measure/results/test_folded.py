"""Requests that are counted instead of kept: the document is that of all requests, within the width of a bin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halcyon_measure.breakdown import sections
from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.results import text
from halcyon_measure.results.columns import Columns
from halcyon_measure.results.document import BenchDocument, Latencies
from halcyon_measure.results.durations import BINS, Durations, bins_of, middles
from halcyon_measure.results.folded import Folded
from halcyon_measure.results.run import Run
from tests.bench_documents import bench_run, document_of

WIDTH = 0.002


def folded(run: Run, parts: int = 7) -> Run:
    """Return the run with its requests counted, in parts as processes and chunks have them."""
    counts = Folded(0.1)
    for part in range(parts):
        counts.add(run.columns.select(np.arange(len(run.columns)) % parts == part))
    return replace(run, columns=Columns.of([]), folded=counts)


def near(counted: Latencies, exact: Latencies) -> None:
    for name in Latencies.model_fields:
        figure, exact_figure = getattr(counted, name), getattr(exact, name)
        assert figure.n == exact_figure.n
        assert figure.value == pytest.approx(exact_figure.value, rel=1e-9 if name in {"mean", "max"} else WIDTH)
        if exact_figure.interval is not None:
            # The bootstrap has bins of half a percent.
            assert figure.interval == pytest.approx(exact_figure.interval, rel=0.01)


@pytest.fixture(scope="module")
def documents() -> tuple[BenchDocument, BenchDocument]:
    """Return the document of counts, and that of all requests."""
    run = bench_run(rate_rps=150, failures=40)
    return document_of(folded(run), rate_rps=150), document_of(run, rate_rps=150)


def test_counts_are_exact(documents: tuple[BenchDocument, BenchDocument]) -> None:
    counted, exact = documents
    assert counted.requests == exact.requests
    assert counted.failures == exact.failures
    assert counted.pods == exact.pods
    for name in ("offered", "throughput", "goodput", "rows"):
        assert getattr(counted, name).value == getattr(exact, name).value
        assert getattr(counted, name).interval == getattr(exact, name).interval


def test_percentiles_are_within_a_bin(documents: tuple[BenchDocument, BenchDocument]) -> None:
    counted, exact = documents
    near(counted.latency, exact.latency)
    near(counted.from_send, exact.from_send)
    near(counted.first_byte, exact.first_byte)
    assert counted.distribution is not None
    assert exact.distribution is not None
    assert counted.distribution.latency_ms == pytest.approx(exact.distribution.latency_ms, rel=WIDTH)


def test_each_second_has_its_counts_and_latencies(documents: tuple[BenchDocument, BenchDocument]) -> None:
    counted, exact = documents
    assert len(counted.timeline) == len(exact.timeline)
    for second, exact_second in zip(counted.timeline, exact.timeline, strict=True):
        assert (second.t_s, second.due, second.answered, second.failed) == (
            exact_second.t_s,
            exact_second.due,
            exact_second.answered,
            exact_second.failed,
        )
        assert second.p50_ms == pytest.approx(exact_second.p50_ms, rel=WIDTH)
        assert second.p99_ms == pytest.approx(exact_second.p99_ms, rel=WIDTH)


def test_document_and_text_say_that_requests_are_counted(documents: tuple[BenchDocument, BenchDocument]) -> None:
    counted, exact = documents
    assert (counted.run.histogram, exact.run.histogram) == (True, False)
    assert counted.latency.p99.source == "due to done; a histogram, within 0.2 %"
    assert "counted in a histogram" in text.page(counted)
    assert "counted in a histogram" not in text.page(exact)


def test_phases_of_the_client_are_those_of_all_requests() -> None:
    run = bench_run()
    phases = [
        sections.added(document_of(variant), variant, prices=Prices(), prepares=False, finishes=False).phases
        for variant in (folded(run), run)
    ]
    assert phases[0] is not None
    assert phases[1] is not None
    assert phases[0].adds_up
    for part, exact_part in zip(phases[0].parts, phases[1].parts, strict=True):
        assert (part.name, part.mean.reason) == (exact_part.name, exact_part.mean.reason)
        if exact_part.mean.value is not None:
            assert part.mean.value == pytest.approx(exact_part.mean.value, rel=1e-6)
        if exact_part.p99.value:
            assert part.p99.value == pytest.approx(exact_part.p99.value, rel=WIDTH)


def test_a_file_keeps_all_counts(tmp_path: Path) -> None:
    run = folded(bench_run(failures=10))
    assert run.folded is not None
    path = run.save(tmp_path)
    assert path.name == "histogram.npz"
    loaded = Folded.load(path)
    assert loaded is not None
    counts, messages, pods = loaded
    assert (messages, pods) == (list(run.messages), list(run.pods))
    assert document_of(replace(run, folded=counts)) == document_of(run)
    assert path.stat().st_size < 200_000


def test_a_file_of_requests_is_none_of_counts(tmp_path: Path) -> None:
    assert Folded.load(bench_run().save(tmp_path)) is None


def test_processes_are_added_with_indices_of_common_lists() -> None:
    run = bench_run(failures=10)
    total = Folded(0.1)
    for number, (kinds, pods) in enumerate((([0], [0, 1]), ([1], [1, 2]))):
        part = Folded(0.1)
        part.add(run.columns.select(np.arange(len(run.columns)) % 2 == number))
        total.merged(part, kinds, pods)
    assert len(total) == len(run.columns)
    assert sum(count for count, *_ in total.failures.values()) == 10
    assert {kind for _, kind in total.failures} == {0, 1}
    assert set(total.pods) <= {0, 1, 2}
    assert total.rows == int(run.columns.rows[run.columns.kind < 0].sum())


def test_the_middle_of_a_bin_is_near_each_of_its_values() -> None:
    values = np.exp(np.random.default_rng(3).uniform(np.log(2e-6), np.log(8000), 20_000))
    centers = middles(bins_of(values))
    assert np.max(np.abs(centers / values - 1)) < WIDTH
    assert np.all(np.diff(middles(np.arange(BINS))) > 0)
    assert bins_of(np.array([0.0, -1.0, 1e9])).tolist() == [0, 0, BINS - 1]


def test_durations_without_a_value_have_no_percentile() -> None:
    empty = Folded().durations("latency")
    assert (empty.n, empty.mean, empty.percentile(0.5)) == (0, None, None)
    assert Durations.of(np.array([])).percentile(0.5) is None
