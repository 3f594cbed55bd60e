"""Creation of prometheus_client instruments from the lists of metrics, for the operator's `/metrics` page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from halcyon.monitoring.metric import Metric

Reads = Mapping[Metric, Callable[[], float | None]]
"""Functions that return the current values of metrics. If a function returns None, the page omits the metric."""


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """Create a counter. The series whose label values are in `metric.known` exist from the start, with the value 0."""
    instrument = Counter(metric.name, metric.meaning, metric.labels, registry=registry)
    for values in metric.known:
        instrument.labels(*values)
    return instrument


def gauge(metric: Metric, registry: CollectorRegistry) -> Gauge:
    """Create a gauge whose value the caller sets."""
    return Gauge(metric.name, metric.meaning, metric.labels, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry, *, buckets: Sequence[float]) -> Histogram:
    """Create a histogram. `buckets` are the upper bounds of its buckets, without +Inf."""
    return Histogram(metric.name, metric.meaning, metric.labels, registry=registry, buckets=buckets)


def histogram_family(metric: Metric) -> HistogramMetricFamily:
    """Create an empty histogram family, to which a collector adds samples at each scrape."""
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


class Read(Collector):
    """Prometheus collector of gauges and counters without labels, whose values are read at each scrape."""

    def __init__(self, reads: Reads, registry: CollectorRegistry) -> None:
        """Create a collector of these metrics, and register it."""
        self._reads = reads
        registry.register(self)

    @override
    def collect(self) -> Iterator[Family]:
        for metric, read in self._reads.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            value = read()
            if value is not None:
                yield kind(metric.name, metric.meaning, value=value)
