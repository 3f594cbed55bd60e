"""How long answers took, by slot, on its way from a balancer's row of counters to those who compare two revisions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.documents.observation_report import AgentReport, ReportedHistogram, SlotLatency
from halcyon.balancer.config import latency_buckets
from halcyon.balancer.config.model import ServerKey
from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
from halcyon.balancer.runtime.server_assignment import ServerState
from halcyon.balancer.telemetry.balancer_sample import balancer_sample
from halcyon.scaling.observations import MAX_AGE_S
from halcyon.signals.observation_store import ObservationStore
from halcyon.signals.validation import validate
from halcyon.triton import pod_sampler as sampler
from tests.unit.signals.records import haproxy, record

SLOT_A, CLIENTS = 22, 6
"""Where their counters begin in HAProxy's row."""
GOOD = SlotLatency("a", (1, 2), (3, 4, 5))


def report_of(*slots: str) -> AgentReport:
    """What an agent tells of a HAProxy with these slots: 9 answers of slot a, 4 within a millisecond."""
    counted = latency_buckets.read({SLOT_A: 9, SLOT_A + 1: 40, SLOT_A + 2: 5})
    clients = latency_buckets.read_clients({CLIENTS: 3, CLIENTS + 1: 3, CLIENTS + 2: 2})
    lines = {ServerKey(slot, 1): ServerState("10.0.0.1", "ready", 0) for slot in slots}
    reading = HaproxyStats(0.0, 1, "halcyon-0", servers=lines, latency=counted, clients=clients)
    return sampler.report(
        namespace="ns",
        name="m",
        agent="m-balancer-0",
        at=1.0,
        balancer=balancer_sample(reading),
        endpoints=(),
        samples={},
        maintenance=frozenset(),
    )


def sent(*slots: SlotLatency) -> AgentReport:
    return record(0, balancer=replace(haproxy(queued=3), latency=slots))


def test_latency_is_reported_for_two_slots_and_arrives_as_counted() -> None:
    report = AgentReport.from_json(report_of("a", "b").to_json())
    hub = ObservationStore()
    hub.receive(validate(report).report, 1.0)
    observation = hub.observe("ns", "m", 1.0)
    assert observation is not None
    [balancer] = observation.balancers
    assert [slot.slot for slot in balancer.latency] == ["a", "b"]
    assert balancer.latency[0].bounds_ms == latency_buckets.BOUNDS_MS
    assert balancer.latency[0].counts[:3] == (4, 5, 0)
    assert sum(balancer.latency[0].counts) == 9
    assert not any(balancer.latency[1].counts)


def test_a_single_slot_has_no_latency_to_compare() -> None:
    report = report_of("a")
    assert report.balancer is not None
    assert report.balancer.latency == ()


def test_client_latency_is_always_reported_and_arrives_as_counted() -> None:
    report = AgentReport.from_json(report_of("a").to_json())
    hub = ObservationStore()
    hub.receive(validate(report).report, 1.0)
    assert hub.client_latencies("ns", "m", 2.0) == {
        "m-balancer-0": ReportedHistogram(latency_buckets.SHOWN_MS, (1, 2, *[0] * 13))
    }
    assert hub.client_latencies("ns", "m", 2.0 + 2 * MAX_AGE_S) == {}
    assert hub.client_latencies("ns", "nobody", 2.0) == {}


def test_an_agent_without_latency_is_still_accepted() -> None:
    older = json.loads(sent().to_json())
    older["balancer"].pop("clients", None)
    report = AgentReport.from_json(json.dumps(older))
    assert report == sent()
    hub = ObservationStore()
    hub.receive(report, 1.0)
    assert hub.client_latencies(report.namespace, report.name, 1.0) == {}


def test_a_record_stays_small() -> None:
    counters = dict.fromkeys(range(latency_buckets.COUNTERS), 2**32 - 1)
    slots = tuple(
        SlotLatency(slot, histogram.bounds_ms, histogram.counts)
        for slot, histogram in latency_buckets.read(counters).items()
    )
    clients = latency_buckets.read_clients(counters)
    full = replace(haproxy(queued=3), latency=slots, clients=ReportedHistogram(clients.bounds_ms, clients.counts))
    assert len(record(0, balancer=full).to_json()) < 2000


def test_plausible_latency_passes() -> None:
    for slots in ((), (GOOD,), (GOOD, replace(GOOD, slot="b"))):
        assert validate(sent(*slots)).report == sent(*slots)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slot": ""},
        {"slot": 1},
        {"bounds_ms": ()},
        {"bounds_ms": (1, 2, 3)},
        {"bounds_ms": (2, 1)},
        {"bounds_ms": (0, 1)},
        {"bounds_ms": (1, 1)},
        {"bounds_ms": (1, 1e9)},
        {"bounds_ms": (1, "2")},
        {"bounds_ms": None},
        {"counts": (1, 2)},
        {"counts": (1, 2, -1)},
        {"counts": (1, 2, 2**54)},
        {"counts": (1, 2, 0.5)},
        {"counts": (1, 2, True)},
        {"counts": None},
    ],
)
def test_implausible_latency_makes_the_histograms_unknown_alone(wrong: dict[str, Any]) -> None:
    vetted = validate(sent(GOOD, replace(GOOD, **wrong)))
    assert vetted.implausible == 1
    assert vetted.report.balancer == haproxy(queued=3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bounds_ms": (1, 2, 3)},
        {"bounds_ms": (2, 1)},
        {"bounds_ms": None},
        {"counts": (1, 2, -1)},
        {"counts": "123"},
    ],
)
def test_clients_answers_that_cannot_be_true_are_unknown_and_nothing_else(wrong: dict[str, Any]) -> None:
    sample = replace(haproxy(queued=3), clients=ReportedHistogram((1, 2), (3, 4, 5)))
    assert validate(record(0, balancer=sample)).report.balancer == sample
    bad = replace(haproxy(queued=3), clients=replace(ReportedHistogram((1, 2), (3, 4, 5)), **wrong))
    vetted = validate(record(0, balancer=bad))
    assert vetted.implausible == 1
    assert vetted.report.balancer == haproxy(queued=3)


def test_more_slots_than_there_can_be_are_not_believed() -> None:
    assert validate(sent(GOOD, GOOD, GOOD)).report.balancer == haproxy(queued=3)
