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
    made = Folded(0.1)
    for which in range(parts):
        made.add(run.columns.select(np.arange(len(run.columns)) % parts == which))
    return replace(run, columns=Columns.of([]), folded=made)


def near(found: Latencies, true: Latencies) -> None:
    for name in Latencies.model_fields:
        one, other = getattr(found, name), getattr(true, name)
        assert one.n == other.n
        assert one.value == pytest.approx(other.value, rel=1e-9 if name in {"mean", "max"} else WIDTH)
        if other.interval is not None:
            # The bootstrap has bins of half a percent.
            assert one.interval == pytest.approx(other.interval, rel=0.01)


@pytest.fixture(scope="module")
def both() -> tuple[BenchDocument, BenchDocument]:
    """Return the document of counts, and that of all requests."""
    run = bench_run(rate_rps=150, failures=40)
    return document_of(folded(run), rate_rps=150), document_of(run, rate_rps=150)


def test_counts_are_exact(both: tuple[BenchDocument, BenchDocument]) -> None:
    found, true = both
    assert found.requests == true.requests
    assert found.failures == true.failures
    assert found.pods == true.pods
    for name in ("offered", "throughput", "goodput", "rows"):
        assert getattr(found, name).value == getattr(true, name).value
        assert getattr(found, name).interval == getattr(true, name).interval


def test_percentiles_are_within_a_bin(both: tuple[BenchDocument, BenchDocument]) -> None:
    found, true = both
    near(found.latency, true.latency)
    near(found.from_send, true.from_send)
    near(found.first_byte, true.first_byte)
    assert found.distribution is not None
    assert true.distribution is not None
    assert found.distribution.latency_ms == pytest.approx(true.distribution.latency_ms, rel=WIDTH)


def test_each_second_has_its_counts_and_latencies(both: tuple[BenchDocument, BenchDocument]) -> None:
    found, true = both
    assert len(found.timeline) == len(true.timeline)
    for one, other in zip(found.timeline, true.timeline, strict=True):
        assert (one.t_s, one.due, one.answered, one.failed) == (other.t_s, other.due, other.answered, other.failed)
        assert one.p50_ms == pytest.approx(other.p50_ms, rel=WIDTH)
        assert one.p99_ms == pytest.approx(other.p99_ms, rel=WIDTH)


def test_document_and_text_say_that_requests_are_counted(both: tuple[BenchDocument, BenchDocument]) -> None:
    found, true = both
    assert (found.run.histogram, true.run.histogram) == (True, False)
    assert found.latency.p99.source == "due to done; a histogram, within 0.2 %"
    assert "counted in a histogram" in text.page(found)
    assert "counted in a histogram" not in text.page(true)


def test_phases_of_the_client_are_those_of_all_requests() -> None:
    run = bench_run()
    made = [
        sections.added(document_of(one), one, prices=Prices(), prepares=False, finishes=False).phases
        for one in (folded(run), run)
    ]
    assert made[0] is not None
    assert made[1] is not None
    assert made[0].adds_up
    for one, other in zip(made[0].parts, made[1].parts, strict=True):
        assert (one.name, one.mean.reason) == (other.name, other.mean.reason)
        if other.mean.value is not None:
            assert one.mean.value == pytest.approx(other.mean.value, rel=1e-6)
        if other.p99.value:
            assert one.p99.value == pytest.approx(other.p99.value, rel=WIDTH)


def test_a_file_keeps_all_counts(tmp_path: Path) -> None:
    run = folded(bench_run(failures=10))
    assert run.folded is not None
    path = run.save(tmp_path)
    assert path.name == "histogram.npz"
    found = Folded.load(path)
    assert found is not None
    made, messages, pods = found
    assert (messages, pods) == (list(run.messages), list(run.pods))
    assert document_of(replace(run, folded=made)) == document_of(run)
    assert path.stat().st_size < 200_000


def test_a_file_of_requests_is_none_of_counts(tmp_path: Path) -> None:
    assert Folded.load(bench_run().save(tmp_path)) is None


def test_processes_are_added_with_indices_of_common_lists() -> None:
    run = bench_run(failures=10)
    whole = Folded(0.1)
    for which, (kinds, pods) in enumerate((([0], [0, 1]), ([1], [1, 2]))):
        one = Folded(0.1)
        one.add(run.columns.select(np.arange(len(run.columns)) % 2 == which))
        whole.merged(one, kinds, pods)
    assert len(whole) == len(run.columns)
    assert sum(count for count, *_ in whole.failures.values()) == 10
    assert {kind for _, kind in whole.failures} == {0, 1}
    assert set(whole.pods) <= {0, 1, 2}
    assert whole.rows == int(run.columns.rows[run.columns.kind < 0].sum())


def test_the_middle_of_a_bin_is_near_each_of_its_values() -> None:
    values = np.exp(np.random.default_rng(3).uniform(np.log(2e-6), np.log(8000), 20_000))
    found = middles(bins_of(values))
    assert np.max(np.abs(found / values - 1)) < WIDTH
    assert np.all(np.diff(middles(np.arange(BINS))) > 0)
    assert bins_of(np.array([0.0, -1.0, 1e9])).tolist() == [0, 0, BINS - 1]


def test_durations_without_a_value_have_no_percentile() -> None:
    empty = Folded().durations("latency")
    assert (empty.n, empty.mean, empty.percentile(0.5)) == (0, None, None)
    assert Durations.of(np.array([])).percentile(0.5) is None
