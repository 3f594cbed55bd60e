"""The lists of metrics: names as Prometheus wants them, and one place for each."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from generators.monitoring import queries, triton_metrics
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics
from halcyon.monitoring import agent_metrics, instruments, metric, operator_metrics, per_model_metrics
from halcyon.monitoring.metric import Metric
from tests.integration.alert_cases import PLACES

OURS = (*per_model_metrics.METRICS, *operator_metrics.METRICS, *agent_metrics.METRICS)
NAMES = {m.name for m in (*OURS, *triton_metrics.METRICS)}
TARGETS = {"job", "instance", "__name__", "le", "quantile"}
"""Labels that Prometheus gives, or that a kind has."""
CHOSEN = {"cluster": ".*", "namespace": "ns", "model": "m", "job": "j", "__rate_interval": "1m"}
WORDS = re.compile(r"\b(?:halcyon|nv|process)_\w+|\bup\b")


@pytest.mark.parametrize("listed", OURS, ids=lambda m: m.name)
def test_names_follow_prometheus_conventions(listed: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", listed.name)
    assert listed.name.endswith("_total") == (listed.kind == "counter")
    # Base units, the unit last, and no kind in the name.
    assert not re.search(
        r"_(ms|us|millis|milliseconds|minutes|hours|kib|mib|mb|percent|gauge|counter|count|sum|bucket)\b", listed.name
    )
    assert not re.search(r"_(seconds|bytes|ratio)_(?!total$)", listed.name)
    if listed.kind == "histogram":
        assert listed.unit
    assert not set(listed.labels) & TARGETS
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in listed.labels)
    assert listed.meaning.endswith(".")
    assert all(len(values) == len(listed.labels) for values in listed.known)


def test_no_family_is_listed_twice_except_those_of_every_process() -> None:
    names = [
        m.name
        for m in (*per_model_metrics.METRICS, *operator_metrics.METRICS, *agent_metrics.METRICS)
        if not m.name.startswith("process_")
    ]
    assert len(names) == len(set(names))


def test_every_series_of_a_query_is_listed_with_known_labels() -> None:
    for query in (*queries.panels(CHOSEN), *queries.watched(PLACES), *queries.raised(PLACES)):
        metrics = {re.sub("_bucket$|(?<=_seconds)_count$", "", name) for name in WORDS.findall(query.expression)} - {
            "up"
        }
        assert metrics <= NAMES, query.location
        assert "$" not in query.expression, query.location
        assert "__" not in query.expression, query.location


def test_instruments_match_the_list_and_a_rate_has_a_beginning() -> None:
    registry = CollectorRegistry()
    instruments.counter(operator_metrics.RECONCILES, registry)
    instruments.gauge(operator_metrics.STREAMS, registry).set(3)
    instruments.Read({operator_metrics.API_WRITES: lambda: 5.0, operator_metrics.LEADER: lambda: 1.0}, registry)
    DecisionMetrics(list, registry)
    families = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}
    expected = (
        operator_metrics.RECONCILES,
        operator_metrics.STREAMS,
        operator_metrics.API_WRITES,
        operator_metrics.LEADER,
        operator_metrics.DECISION,
    )
    for listed in expected:
        family = families[listed.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (listed.kind, listed.meaning)
    assert {
        (s.labels["result"], s.value) for s in families["halcyon_reconciles"].samples if s.name.endswith("_total")
    } == {
        ("done", 0),
        ("requeue", 0),
        ("conflict", 0),
        ("error", 0),
    }
    assert families["halcyon_api_writes"].samples[0].value == 5


def test_a_value_that_is_not_known_has_no_family() -> None:
    registry = CollectorRegistry()
    instruments.Read({operator_metrics.MEMORY_LIMIT: lambda: None, operator_metrics.LEADER: lambda: 1.0}, registry)
    [family] = text_string_to_metric_families(generate_latest(registry).decode())
    assert family.name == operator_metrics.LEADER.name


def test_a_label_with_quotes_backslashes_and_lines_is_read_back() -> None:
    listed = Metric("halcyon_x", "gauge", "A thing.", ("what",))
    text = 'a "b" \\ c\nd'
    page = metric.family(listed, [((("what", text),), "", 1.5), ((("what", "plain"),), "", 2.0)])
    [family] = text_string_to_metric_families(page)
    assert [(s.labels["what"], s.value) for s in family.samples] == [(text, 1.5), ("plain", 2)]
    assert metric.family(listed, []) == "", "what isn't known has no family"
