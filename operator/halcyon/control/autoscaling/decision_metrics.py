"""Histograms of the duration of decisions and of the age of the models' current decisions.

The age histogram is weighted by time: each model adds the age of its current decision in each second. Its quantiles are
therefore those for a random model at a random time. If only new decisions were counted, the metric would not show
models that get none. Recording a value takes less than a microsecond.
"""

# metric                          counts          value
# halcyon_decision_seconds        decisions       time for reading, planning and publishing, until the next model's turn
# halcyon_decision_age_seconds    model-seconds   age of the model's current decision

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from halcyon.monitoring import operator_metrics
from halcyon.monitoring.instruments import histogram_family

_DURATIONS_S = (
    *(2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 8e-5, 9e-5, 1e-4, 1.2e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4, 4e-4, 5e-4, 7e-4),
    *(1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1),
)
"""Bucket bounds of the duration of a decision, in seconds. They are dense around 100 us, the target for a decision, so
that a quantile there is accurate to 10 %."""
_AGES_S = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 7.5, 10.0, 15.0, 30.0, 60.0)
_BELOW_S = (0.0, *_AGES_S)
"""Lower bound of each bucket for the age of decisions, in seconds."""


class _Spent:
    """Histogram of the ages of decisions, in model-seconds. It is computed from the final age of each decision."""

    def __init__(self) -> None:
        self._reached = [0] * len(_BELOW_S)
        """Number of ended decisions, by the bucket of their final age."""
        self._beyond_s = [0.0] * len(_BELOW_S)
        """Seconds that ended decisions spent in the bucket of their final age, by bucket."""
        self.total_s2 = 0.0
        """Sum of the histogram: the integral of the age over time, in square seconds."""

    def add(self, age_s: float) -> None:
        """Add a decision that was replaced when its age was `age_s` seconds."""
        bucket = bisect_left(_AGES_S, age_s)
        self._reached[bucket] += 1
        self._beyond_s[bucket] += age_s - _BELOW_S[bucket]
        self.total_s2 += age_s * age_s / 2

    def with_ages(self, ages_s: Iterable[float]) -> _Spent:
        """Return a copy of the histogram, with current decisions of the given ages added."""
        copy = _Spent()
        copy._reached, copy._beyond_s, copy.total_s2 = list(self._reached), list(self._beyond_s), self.total_s2
        for age_s in ages_s:
            copy.add(age_s)
        return copy

    def seconds(self) -> list[float]:
        """Return the model-seconds in each bucket. A decision contributes to its final bucket and all lower ones."""
        spent_s = list(self._beyond_s)
        older = 0
        for bucket in range(len(_AGES_S), 0, -1):
            older += self._reached[bucket]
            spent_s[bucket - 1] += older * (_BELOW_S[bucket] - _BELOW_S[bucket - 1])
        return spent_s


class DecisionMetrics(Collector):
    """Prometheus collector of the histograms of the duration and the age of decisions."""

    def __init__(self, ages: Callable[[], Iterable[float]], registry: CollectorRegistry) -> None:
        """Register the histograms. `ages` returns the age of each model's current decision, in seconds."""
        self._ages = ages
        self._duration_counts = [0] * (len(_DURATIONS_S) + 1)
        self._total_s = 0.0
        self._ended = _Spent()
        registry.register(self)

    def add_duration(self, seconds: float) -> None:
        """Count a decision that took `seconds` to make."""
        self._duration_counts[bisect_left(_DURATIONS_S, seconds)] += 1
        self._total_s += seconds

    def add_age(self, age_s: float) -> None:
        """Count a decision that ended at the age `age_s`, because it was replaced or its model was deleted."""
        self._ended.add(age_s)

    @override
    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield both histograms. Current decisions are counted with their present age."""
        durations = histogram_family(operator_metrics.DECISION)
        durations.add_metric([], _buckets(_DURATIONS_S, self._duration_counts), self._total_s)
        yield durations
        spent = self._ended.with_ages(self._ages())
        ages = histogram_family(operator_metrics.DECISION_AGE)
        ages.add_metric([], _buckets(_AGES_S, spent.seconds()), spent.total_s2)
        yield ages


def _buckets(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    names = [*(str(bound) for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
