"""Triton's batch statistics, from its answer to the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.documents.observation_report import MAX_SIZES, AgentReport, BatchStats, PodSample, ReportError
from halcyon.balancer.telemetry.report_stream import without_times
from halcyon.triton.client import Endpoint, parse_batches
from halcyon.triton.errors import TritonError
from halcyon.triton.pod_sampler import MAX_WITH_BATCHES, ScrapedPod, report
from tests.unit.balancer.batch_statistics import size, stats, version


def test_time_is_input_inference_and_output_together_and_versions_are_summed() -> None:
    document = stats(
        version(size(1, 3, 80_000_000, 500_000, 500_000), size(16, 3, 44_000_000)),
        version(size(16, 2, 26_000_000), number="2"),
        version(size(16, 9, 9), name="other"),
    )
    assert parse_batches(document, "digits", pod="p")[0] == ((1, 3, 81_000), (16, 5, 70_000))


def test_statistics_without_a_batch_are_known_and_empty() -> None:
    assert parse_batches(stats(version()), "digits", pod="p")[0] == ()
    assert parse_batches(stats(version(size(4, 0, 0))), "digits", pod="p")[0] == ()


def test_the_most_frequent_of_many_sizes_are_reported() -> None:
    document = stats(version(*(size(rows, rows, 1000 * rows) for rows in range(1, 200))))
    batches, spent_us = parse_batches(document, "digits", pod="p")
    assert spent_us == sum(range(1, 200))
    assert [rows for rows, _, _ in batches] == list(range(200 - MAX_SIZES, 200))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "batch_stats", "batch_size", "compute_infer", "compute_input", "count", "ns"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_a_malformed_answer_is_an_error_of_the_pod_alone(inner: Any, deep: bool) -> None:
    document = {"model_stats": [{"name": "m", "batch_stats": inner}]} if deep else inner
    try:
        batches, _ = parse_batches(document, "m", pod="p")
    except TritonError:
        return
    assert all(rows >= 1 and count >= 1 and us >= 0 for rows, count, us in batches)


def pods(count: int) -> list[Endpoint]:
    return [Endpoint("a", f"p-{n}", "127.76.2.1", serving=True, terminating=False) for n in range(count)]


def report_of(batches: BatchStats | None) -> AgentReport:
    return report(
        namespace="ns",
        name="m",
        agent="x",
        at=1001.0,
        endpoints=pods(1),
        samples={"p-0": ScrapedPod(1000.5, None, None, batches)},
        maintenance=set(),
    )


def test_batches_travel_with_the_record_and_are_no_news_by_themselves() -> None:
    sent = report_of(BatchStats(1000.0, ((1, 3, 89_000), (16, 3, 44_000))))
    assert AgentReport.from_json(sent.to_json()) == sent
    assert without_times(sent) == without_times(report_of(None))


def test_a_record_of_an_older_agent_is_read() -> None:
    document = json.loads(report_of(None).to_json())
    document["pods"][0].pop("batches", None)
    assert AgentReport.from_json(json.dumps(document)) == report_of(None)


@pytest.mark.parametrize(
    "batches",
    [
        1,
        [],
        "x",
        {},
        {"at": 1.0},
        {"at": 1.0, "sizes": 5},
        {"at": 1.0, "sizes": [5]},
    ],
)
def test_batches_that_are_none_are_no_record(batches: Any) -> None:
    document = json.loads(report_of(None).to_json())
    document["pods"][0]["batches"] = batches
    with pytest.raises(ReportError):
        AgentReport.from_json(json.dumps(document))


def test_a_record_of_a_thousand_pods_fits_into_a_message() -> None:
    sizes = tuple((rows, 10**9, 10**12) for rows in range(65_000, 65_000 + MAX_SIZES))
    pods = tuple(
        PodSample(f"some-long-name-of-a-model-server-a-5d8f7c9b6d-{n:05}", "ready", 1763700000.123, pending=10, succeeded=10**9, failed=0, backend_failed=0, rows=10**9, executions=10**9, queue_us=10**12, compute_us=10**12, gpu=0.5, versions=("1",), batches=BatchStats(1763700000.123, sizes) if n < MAX_WITH_BATCHES else None)
        for n in range(1000)
    )  # fmt: skip
    assert len(AgentReport("ns", "m", "x", 1.0, None, pods).to_json()) < 512 * 1024
