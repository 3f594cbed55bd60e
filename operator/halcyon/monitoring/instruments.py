"""Metrics of the lists as instruments of prometheus_client, which writes the operator's own page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from halcyon.monitoring.metric import Metric

Reads = Mapping[Metric, Callable[[], float | None]]
"""None: there is no value now, and so no family."""


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """A counter, with the series that are there from the beginning."""
    made = Counter(metric.name, metric.meaning, metric.labels, registry=registry)
    for values in metric.known:
        made.labels(*values)
    return made


def gauge(metric: Metric, registry: CollectorRegistry) -> Gauge:
    """A gauge that is set."""
    return Gauge(metric.name, metric.meaning, metric.labels, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry, *, buckets: Sequence[float]) -> Histogram:
    """A histogram that observes; `buckets` are upper bounds, without the infinite one."""
    return Histogram(metric.name, metric.meaning, metric.labels, registry=registry, buckets=buckets)


def histogram_family(metric: Metric) -> HistogramMetricFamily:
    """An empty histogram, for who fills it when it is asked for."""
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


class Read(Collector):
    """Gauges and counters without labels that are read when they are asked for."""

    def __init__(self, reads: Reads, registry: CollectorRegistry) -> None:
        """Each value as it is at the time of a scrape."""
        self._reads = reads
        registry.register(self)

    @override
    def collect(self) -> Iterator[Family]:
        for metric, read in self._reads.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            value = read()
            if value is not None:
                yield kind(metric.name, metric.meaning, value=value)
