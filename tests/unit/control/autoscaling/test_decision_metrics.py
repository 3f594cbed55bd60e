"""What the operator tells of its decisions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from benchmarks.cost import histogram_quantile
from halcyon.control.autoscaling.decision_metrics import DecisionMetrics


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """As `/metrics` has them."""
    return {
        s.name + "".join(f'{{{k}="{v}"}}' for k, v in s.labels.items()): s.value
        for m in registry.collect()
        for s in m.samples
    }


def test_the_median_of_decision_times_is_reported_to_a_tenth() -> None:
    registry = CollectorRegistry()
    times = DecisionMetrics(lambda: (), registry)
    for n in range(1, 200):
        times.add_duration(n * 1e-6)
    median = histogram_quantile({}, samples(registry), "halcyon_decision_seconds", 0.5)
    assert median == pytest.approx(1e-4, rel=0.1)
    assert samples(registry)["halcyon_decision_seconds_count"] == 199


def test_a_model_without_decisions_is_visible_among_frequent_ones() -> None:
    registry, stuck = CollectorRegistry(), [0.0]
    times = DecisionMetrics(lambda: stuck, registry)
    for _ in range(20 * 100):
        times.add_age(1.0)  # twenty models, once a second
    stuck[0] = 100.0
    quantile = histogram_quantile({}, samples(registry), "halcyon_decision_age_seconds", 0.99)
    assert quantile is not None
    assert quantile > 5.0


@given(st.lists(st.floats(0, 100)), st.lists(st.floats(0, 100)))
def test_every_second_of_every_model_is_counted_once(ended: list[float], in_force: list[float]) -> None:
    registry = CollectorRegistry()
    times = DecisionMetrics(lambda: in_force, registry)
    for age_s in ended:
        times.add_age(age_s)
    values = samples(registry)
    assert values["halcyon_decision_age_seconds_count"] == pytest.approx(sum(ended) + sum(in_force))
    assert values["halcyon_decision_age_seconds_sum"] == pytest.approx(math.fsum(a * a / 2 for a in ended + in_force))
    below_5 = values['halcyon_decision_age_seconds_bucket{le="5.0"}']
    assert below_5 == pytest.approx(sum(min(age_s, 5.0) for age_s in ended + in_force))
