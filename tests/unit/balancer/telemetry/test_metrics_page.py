"""The agent's page of metrics, read by Prometheus' own parser; and its reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from halcyon.balancer.config import latency_buckets
from halcyon.balancer.config.latency_buckets import BOUNDS_MS, SHOWN_MS, Latency
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.class_load import LowerStats
from halcyon.balancer.runtime.haproxy_stats import ClientUsage, HaproxyStats
from halcyon.balancer.runtime.server_assignment import ServerState
from halcyon.balancer.telemetry.metrics_page import PageInput, page
from halcyon.monitoring.agent_metrics import METRICS
from halcyon.triton.client import Endpoint

PAGE = Path(__file__).parents[4] / "docs/reference/agent-metrics.md"
SLOT_A, SLOT_B = 22, 61
"""Where the counters of a slot begin in HAProxy's row; those of clients begin at 6."""
COUNTERS = {
    SLOT_A: 90,
    SLOT_A + 1: 4000,
    SLOT_A + 2: 60,
    SLOT_A + 3: 30,
    SLOT_A + 38: 4,
    SLOT_B: 5,
    6: 80,
    7: 9000,
    8: 80,
    9: 80,
    10: 70,
}
READING = HaproxyStats(
    0.0,
    4711,
    "halcyon-0123",
    servers={
        ServerKey("a", 1): ServerState("10.0.0.1", "ready", 7),
        ServerKey("a", 2): ServerState("10.0.0.9", "maint", 0),
    },
    queued=3,
    requests=100,
    latency=latency_buckets.read(COUNTERS),
    clients=latency_buckets.read_clients(COUNTERS),
    first_events=latency_buckets.read_streams({0: 5, 1: 4000, 2: 5, 3: 2}),
    lower=LowerStats(waiting=4, sent=2, requests=40, rejected=1, errors=0, answered=33),
    usage={"alice": ClientUsage(4, 300, 5_000_000_000), "bob": ClientUsage(1, 70, 90)},
)
ENDPOINTS = (
    Endpoint("a", "pod-1", "10.0.0.1", serving=True, terminating=False),
    Endpoint("a", "pod-2", "10.0.0.2", serving=False, terminating=True),
)
PROCESS = {metric.name: 1.5 for metric in METRICS if metric.name.startswith("process_")}


def view(reading: HaproxyStats | None = READING, endpoints: tuple[Endpoint, ...] | None = ENDPOINTS) -> PageInput:
    return PageInput(
        reading=reading,
        endpoints=endpoints,
        samples={},
        maintenance=frozenset(),
        unplaced=0,
        reloads=2,
        plan_errors=0,
        has_problem=False,
        expires={"tls.crt": 1.8e9},
        streams=1,
        process=PROCESS,
    )


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_page_has_exactly_the_lists_metrics_with_kind_and_meaning() -> None:
    families = {family.name: family for family in text_string_to_metric_families(page(view()))}
    # The parser takes `_total` off, as OpenMetrics has it.
    assert list(families) == [metric.name.removesuffix("_total") for metric in METRICS]
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_counters_end_in_total_and_nothing_else_does() -> None:
    assert all((metric.kind == "counter") == metric.name.endswith("_total") for metric in METRICS)


def test_values_that_haproxy_does_not_report_have_no_sample() -> None:
    values = samples(page(view(reading=None, endpoints=None)))
    assert values["halcyon_agent_haproxy_up", ()] == 0
    assert values["halcyon_agent_endpoints_known", ()] == 0
    assert not [name for name, _ in values if name.startswith(("halcyon_agent_requests", "halcyon_agent_held"))]


def test_the_lower_class_has_metrics_of_its_own() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_requests_total", ()] == 100
    assert values["halcyon_agent_batch_requests_total", ()] == 40
    assert (values["halcyon_agent_batch_waiting", ()], values["halcyon_agent_batch_inflight", ()]) == (4, 2)
    without = samples(page(view(reading=replace(READING, lower=None))))
    assert not [name for name, _ in without if "batch" in name]


def test_clients_with_keys_have_their_requests_and_bytes() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_client_requests_total", ("alice",)] == 4
    assert values["halcyon_agent_client_received_bytes_total", ("bob",)] == 70
    assert values["halcyon_agent_client_sent_bytes_total", ("alice",)] == 5e9
    without = samples(page(view(replace(READING, usage={}))))
    assert not [name for name, _ in without if name == "halcyon_agent_client_requests_total"]


def test_each_pod_has_its_state_and_its_requests_in_flight() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_pod_inflight", ("pod-1", "a")] == 7
    assert values["halcyon_agent_pod_inflight", ("pod-2", "a")] == 0
    states = [labels for name, labels in values if name == "halcyon_agent_pod_state"]
    assert states == [("pod-1", "a", "ready"), ("pod-2", "a", "draining")]


def test_a_histogram_has_cumulative_buckets_of_both_slots() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_response_duration_seconds_bucket", ("a", "0.001")] == 30
    assert values["halcyon_agent_response_duration_seconds_bucket", ("a", "0.002")] == 60
    assert values["halcyon_agent_response_duration_seconds_bucket", ("a", "+Inf")] == 90
    assert values["halcyon_agent_response_duration_seconds_sum", ("a",)] == 4.0
    assert values["halcyon_agent_response_duration_seconds_count", ("b",)] == 5
    assert values["halcyon_agent_failed_responses_total", ("a",)] == 4
    assert values["halcyon_agent_failed_responses_total", ("b",)] == 0


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**32 - 1), min_size=len(BOUNDS_MS), max_size=len(BOUNDS_MS)))
def test_buckets_rise_whatever_moment_the_counters_were_read_at(answered: int, slower: list[int]) -> None:
    read = Latency(BOUNDS_MS, answered, 0, tuple(slower))
    assert all(low <= high for (_, low), (_, high) in pairwise(read.buckets))
    assert all(0 <= count <= answered for _, count in read.buckets)
    assert [bound_s for bound_s, _ in read.buckets] == [bound_ms / 1000 for bound_ms in SHOWN_MS]
    assert min(read.counts) >= 0
    assert sum(read.counts) == answered


@given(st.text())
def test_a_label_can_hold_any_text(text: str) -> None:
    endpoint = Endpoint("a", text, "10.0.0.1", serving=True, terminating=False)
    families = text_string_to_metric_families(page(view(endpoints=(endpoint,))))
    pods = [
        s.labels["server_pod"] for family in families if family.name.endswith("pod_inflight") for s in family.samples
    ]
    assert pods == [text]


def test_bounds_rise_and_the_counters_fit_haproxys_row() -> None:
    assert all(low < high for low, high in pairwise(BOUNDS_MS))
    assert set(SHOWN_MS) <= set(BOUNDS_MS)
    assert latency_buckets.COUNTERS <= 100


def test_client_latency_includes_the_wait() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_request_duration_seconds_bucket", ("0.002",)] == 0
    assert values["halcyon_agent_request_duration_seconds_bucket", ("0.005",)] == 10
    assert values["halcyon_agent_request_duration_seconds_sum", ()] == 9.0
    assert values["halcyon_agent_request_duration_seconds_count", ()] == 80


def test_streams_have_a_time_to_their_first_event() -> None:
    values = samples(page(view()))
    assert values["halcyon_agent_first_event_duration_seconds_bucket", ("0.002",)] == 3
    assert values["halcyon_agent_first_event_duration_seconds_sum", ()] == 4.0
    assert values["halcyon_agent_first_event_duration_seconds_count", ()] == 5


def test_the_reference_has_every_metric_and_no_other() -> None:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
        for metric in METRICS
    ]
    assert [line.replace("|  |", "| |") for line in rows] == [
        line for line in PAGE.read_text().splitlines() if line.startswith(("| `halcyon_", "| `process_"))
    ]
