"""Waiting in the balancers, from the histograms of their agents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halcyon_measure.breakdown.energy import Prices
from halcyon_measure.breakdown.sections import added, balancer
from halcyon_measure.results.observations import (
    BalancerSample,
    Counters,
    Observations,
    Readings,
    ServerConfig,
    Statistics,
)
from tests.bench_documents import bench_run, document_of


def sample(at: float, requests: float, *, held: float = 0.0) -> BalancerSample:
    """Return a reading of requests that take 30 ms at the server and 10 ms in the balancer."""
    return BalancerSample(at, requests, requests * 0.04, requests, requests * 0.03, held)


def test_wait_in_the_balancer_is_the_difference_of_its_histograms() -> None:
    seen = Observations(span_s=2, balancers=(Readings("a", (sample(0, 100), sample(2, 300))),))
    held, queued, _, source = balancer(seen)
    assert (held, queued) == (0, pytest.approx(0.01))
    assert source.startswith("the agents' histograms")


def test_held_time_follows_from_the_number_of_held_requests() -> None:
    seen = Observations(span_s=2, balancers=(Readings("a", (sample(0, 100, held=0.5), sample(2, 300, held=0.5))),))
    held, queued, *_ = balancer(seen)
    assert (held, queued) == (pytest.approx(0.005), pytest.approx(0.005))


def test_counters_of_a_balancer_that_ran_backwards_are_not_believed() -> None:
    seen = Observations(span_s=2, balancers=(Readings("a", (sample(0, 300), sample(2, 100))),))
    assert balancer(seen)[:3] == (None, None, "the balancers' counters stand still, or ran backwards")


def test_queue_of_a_plain_haproxy_follows_from_its_length() -> None:
    samples = tuple(BalancerSample(float(at), requests=100.0 * at, queued=1.2) for at in range(6))
    held, queued, why, source = balancer(Observations(span_s=5, balancers=(Readings("a", samples),)))
    assert (held, queued) == (None, pytest.approx(0.012))
    assert "no held requests" in why
    assert "Little's law" in source


def test_few_readings_of_a_queue_are_not_believed() -> None:
    samples = tuple(BalancerSample(float(at), requests=100.0 * at, queued=1.2) for at in range(3))
    means = balancer(Observations(span_s=2, balancers=(Readings("a", samples),)))
    assert means == (None, None, "HAProxy's queue was read 3 times; 5 are needed", "")


def test_an_unread_balancer_has_its_reason() -> None:
    seen = Observations(balancers=(Readings("a", (), "http://a:9100/metrics doesn't answer: refused"),))
    assert balancer(seen)[2] == "http://a:9100/metrics doesn't answer: refused"
    assert "--balancer-metrics" in balancer(Observations())[2]


def test_an_ensemble_says_what_is_measured_and_what_is_not() -> None:
    run = bench_run()
    # Triton counts an ensemble's requests, and no executions.
    after = Statistics(Counters(len(run.columns), len(run.columns), 0, 0, 0, 0, 0))
    observations = Observations(
        span_s=30,
        before=Statistics(Counters(0, 0, 0, 0, 0, 0, 0)),
        after=after,
        config=ServerConfig(1, 1, 0.0, ("tokenize",)),
    )
    document = added(
        document_of(run), replace(run, observations=observations), prices=Prices(), prepares=False, finishes=False
    )
    assert document.phases is not None
    assert document.batches is not None
    assert document.verdict is not None
    by_name = {part.name: part for part in document.phases.parts}
    for figure in (by_name["queue"].mean, by_name["model"].mean, document.batches.executions, document.batches.busy):
        assert figure.value is None
        assert figure.reason.startswith("digits is an ensemble, which executes nothing itself")
        assert figure.reason.endswith("a step alone: --model tokenize")
    assert "is an ensemble" in document.verdict.sentence
    assert by_name["send"].mean.value is not None
    assert document.latency.p99.value is not None


def test_cost_follows_from_the_rate_and_not_from_the_wait_for_answers() -> None:
    run = bench_run(duration_s=10)
    document = document_of(run, duration_s=10)
    observations = Observations(span_s=15)
    prices = Prices(per_hour=3.6)
    result = added(document, replace(run, observations=observations), prices=prices, prepares=False, finishes=False)
    assert result.energy is not None
    assert document.rows.value is not None
    assert result.energy.cost_per_thousand.value == pytest.approx(3.6 / 3600 / document.rows.value * 1000)
