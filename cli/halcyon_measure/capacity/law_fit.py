"""Fit of a queueing law to a server.

The data are runs with one caller, at saturation and with random arrivals, and Triton's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from halcyon_measure.capacity.queue_law import QueueLaw
from halcyon_measure.results.columns import Floats

_MAX_SERIAL_LOAD = 1.15
"""Product of the saturation rate and the latency of one caller up to which a server is assumed to execute one request
at a time."""
_BATCHES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
_INSTANCES = (1, 2, 4)
_MIN_LATENCY_S = 1e-5


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about a server that are known before the first run with random arrivals."""

    single_s: float
    """Mean latency with one caller, in seconds."""
    saturation_rps: float
    constant_s: float | None = None
    """Constant part of a batch's execution time, in seconds, from the server's statistics; None if unknown."""
    per_request_s: float | None = None
    largest: int | None = None
    """Number of requests in the largest executed batch, from the server's statistics."""
    mean: float | None = None
    """Mean number of requests per batch at saturation."""
    instances: int | None = None
    """Number of batches executed at the same time, from the server's configuration."""


def computed_law(facts: Facts) -> QueueLaw | None:
    """Return the queueing law computed from the server's statistics; None if a statistic is missing.

    An instance is also busy between executions. This time is the cycle time of a batch at saturation minus its
    execution time.
    """
    if facts.largest is None or facts.instances is None:
        return None
    constant, per_request = facts.constant_s, facts.per_request_s
    if facts.largest == 1:
        service_s = facts.instances / facts.saturation_rps
        busy = facts.single_s if not 0.5 * facts.single_s < service_s < 1.02 * facts.single_s else service_s
        return QueueLaw(busy, 0.0, 1, facts.instances, max(facts.single_s - busy, 0.0))
    if constant is None or per_request is None or facts.mean is None:
        return None
    if constant < 0 or per_request < 0:
        per_request = max(per_request, 0.0)
        constant = max(constant, 0.0)
    cycle = facts.instances * facts.mean / facts.saturation_rps
    between = min(max(cycle - constant - per_request * facts.mean, 0.0), 0.2 * cycle)
    law = QueueLaw(constant + between, per_request, facts.largest, facts.instances)
    if law.execution_s(facts.largest) <= 0:
        return None
    return replace(law, overhead_s=max(facts.single_s - constant - per_request, 0.0))


def candidates(facts: Facts) -> list[QueueLaw]:
    """Return the queueing laws that are consistent with the latency of one caller and with the saturation rate."""
    single, rate = facts.single_s, facts.saturation_rps
    in_service = single * rate
    if in_service <= _MAX_SERIAL_LOAD:
        service = min(single, 1 / rate)
        return [QueueLaw(service, 0.0, overhead_s=single - service)]
    concurrency = max(round(in_service), 2)
    service = min(single, concurrency / rate)
    laws = [QueueLaw(service, 0.0, 1, concurrency, single - service)]
    for instances in _INSTANCES:
        for batch in _BATCHES:
            full = instances * batch / rate
            per_request = (full - single) / (batch - 1)
            if per_request >= 0 and single - per_request >= 0:
                laws.append(QueueLaw(single - per_request, per_request, batch, instances))
    return laws


def best(laws: Sequence[QueueLaw], due: Floats, latency: Floats) -> QueueLaw:
    """Return the queueing law whose latencies with the arrivals `due` are closest to the measured `latency`.

    The distance is the mean absolute logarithm of the ratios. Failed requests, whose latency is NaN, are ignored.
    """

    def distance(law: QueueLaw) -> float:
        ratio = np.log(np.maximum(law.latencies(due), _MIN_LATENCY_S) / np.maximum(latency, _MIN_LATENCY_S))
        return float(np.nanmean(np.abs(ratio)))

    return min(laws, key=distance)
