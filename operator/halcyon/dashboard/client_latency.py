"""Quantiles of the latency of clients between two samples of the balancers' counters. Pure.

Out of scope: counting the responses (`halcyon.balancer.config.latency_buckets`), storing the quantiles (`history`).
"""

# | balancer                                | responses that are counted                                   |
# | --------------------------------------- | ------------------------------------------------------------ |
# | in the last sample                      | the growth of its counters                                   |
# | in the last sample, a counter decreased | its whole counters, because HAProxy has restarted            |
# | not in the last sample                  | none, because it is unknown when they were counted           |

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from halcyon.api.documents.observation_report import ReportedHistogram
from halcyon.dashboard.ports import Name
from halcyon.scaling import histogram
from halcyon.scaling.histogram import growth

SHARES = (0.5, 0.95, 0.99)
Bounds = tuple[int, ...]


class Quantiles(NamedTuple):
    """Quantiles of the client latency, one for each share in `SHARES`, in milliseconds.

    A value is None if there were no responses.
    """

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


NO_RESPONSES = Quantiles()


class ClientLatency:
    """Calculation of the client latency of all models.

    It stores the last sample of each model's balancers, which takes 0.3 KiB per model.
    """

    def __init__(self) -> None:
        self._samples: dict[Name, dict[str, tuple[Bounds, array[int]]]] = {}

    def update(self, name: Name, histograms: Mapping[str, ReportedHistogram]) -> Quantiles:
        """Store a sample, and return the quantiles of the responses since the last sample of this model.

        Args:
            name: key of the model.
            histograms: latency histogram of each balancer, by the name of its pod.
        """
        before = self._samples.get(name, {})
        now = self._samples[name] = {pod: (h.bounds_ms, array("Q", h.counts)) for pod, h in histograms.items()}
        grown: dict[Bounds, list[int]] = {}
        for pod, (bounds_ms, counts) in now.items():
            if pod not in before:
                continue
            bounds_before, counts_before = before[pod]
            answered = (growth(counts_before, counts) if bounds_before == bounds_ms else None) or counts
            grown[bounds_ms] = [a + b for a, b in zip(grown.get(bounds_ms, [0] * len(counts)), answered, strict=True)]
        if not grown:
            return NO_RESPONSES
        # During a rollout of the balancers, two versions may have different bounds. Use the bounds with the most responses.
        bounds_ms, total = max(grown.items(), key=lambda pair: sum(pair[1]))
        return Quantiles(*(quantile(bounds_ms, total, share) for share in SHARES))

    def forget(self, name: Name) -> None:
        """Delete the last sample of a model that sends no reports.

        This is done so that the responses during the gap are not counted later.
        """
        self._samples.pop(name, None)

    def retain(self, names: Iterable[Name]) -> None:
        """Delete the samples of all models except these."""
        for deleted in self._samples.keys() - set(names):
            del self._samples[deleted]


def quantile(bounds_ms: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """Return the quantile of a histogram, in milliseconds; None if it is empty.

    If the quantile is above the upper bound of the last finite bucket, its value is unknown, and this bound is
    returned.
    """
    value = histogram.quantile(bounds_ms, counts, share)
    return None if value is None else min(value, float(bounds_ms[-1]))
