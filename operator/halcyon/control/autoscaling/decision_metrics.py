"""How long decisions take and how old those in force are, as histograms that take less than a microsecond to fill.

A decision's age is counted at every moment of every model: a model that nobody decides for any more shows, which the number
of decisions would hide. So `halcyon_decision_age_seconds` counts model-seconds, and a quantile of it is that of the age that
somebody would find who looks at a model at random.

    halcyon_decision_seconds        by decision: reading, planning and what follows, until the next model's turn
    halcyon_decision_age_seconds    by model-second: the age of the decision in force
"""

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

_TOOK_S = (
    *(2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 8e-5, 9e-5, 1e-4, 1.2e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4, 4e-4, 5e-4, 7e-4),
    *(1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1),
)
"""Close to each other around the 100 us that a decision may take, so that a quantile can be told to a tenth."""
_AGES_S = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 7.5, 10.0, 15.0, 30.0, 60.0)
_BELOW_S = (0.0, *_AGES_S)
"""Where each bucket of ages begins."""


class _Spent:
    """Model-seconds by age, of decisions by the age that they have reached."""

    def __init__(self) -> None:
        self._reached = [0] * len(_BELOW_S)
        """Decisions whose age lies in this bucket,"""
        self._beyond_s = [0.0] * len(_BELOW_S)
        """and the seconds that they were in it. Both only grow, and so does every bucket: a counter that fell would read as a restart."""
        self.total_s2 = 0.0
        """The integral of the age over the seconds."""

    def add(self, age_s: float) -> None:
        """One decision, from age 0 to `age_s`."""
        bucket = bisect_left(_AGES_S, age_s)
        self._reached[bucket] += 1
        self._beyond_s[bucket] += age_s - _BELOW_S[bucket]
        self.total_s2 += age_s * age_s / 2

    def with_ages(self, ages_s: Iterable[float]) -> _Spent:
        """A copy with decisions of these ages as well."""
        made = _Spent()
        made._reached, made._beyond_s, made.total_s2 = list(self._reached), list(self._beyond_s), self.total_s2
        for age_s in ages_s:
            made.add(age_s)
        return made

    def seconds(self) -> list[float]:
        """By bucket; who is older has been in all of the younger ones for as long as they are wide."""
        spent_s = list(self._beyond_s)
        older = 0
        for bucket in range(len(_AGES_S), 0, -1):
            older += self._reached[bucket]
            spent_s[bucket - 1] += older * (_BELOW_S[bucket] - _BELOW_S[bucket - 1])
        return spent_s


class DecisionMetrics(Collector):
    """Both histograms."""

    def __init__(self, ages: Callable[[], Iterable[float]], registry: CollectorRegistry) -> None:
        """`ages`: seconds since each model was decided for, of those that were."""
        self._ages = ages
        self._took = [0] * (len(_TOOK_S) + 1)
        self._took_s = 0.0
        self._ended = _Spent()
        registry.register(self)

    def took(self, seconds: float) -> None:
        """A decision was made in so long."""
        self._took[bisect_left(_TOOK_S, seconds)] += 1
        self._took_s += seconds

    def ended(self, age_s: float) -> None:
        """A decision was in force for so long, and isn't any more."""
        self._ended.add(age_s)

    @override
    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Both as they are now, decisions that are still in force with the age that they have reached."""
        took = histogram_family(operator_metrics.DECISION)
        took.add_metric([], _buckets(_TOOK_S, self._took), self._took_s)
        yield took
        spent = self._ended.with_ages(self._ages())
        aged = histogram_family(operator_metrics.DECISION_AGE)
        aged.add_metric([], _buckets(_AGES_S, spent.seconds()), spent.total_s2)
        yield aged


def _buckets(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    names = [*(str(bound) for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
