"""Capacity of one replica within its latency objective, called mu, in requests per second.

It is determined by simulation, because no formula holds for all batch sizes and percentiles. The clairvoyant schedule
uses it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from halcyon_simulator.engine.case import Case, ServiceLaw
from halcyon_simulator.engine.event_loop import SIGNALS, Floats, engine
from halcyon_simulator.engine.jit import jit

_REQUESTS = 100_000
_WARM_UP = 5_000
"""Number of requests at the start of each simulation that are not scored, because the replica is idle at first."""
_MAX_LATE = 0.01
_STEP = 0.8
_STEPS = 31
"""Number of rates to try, from the peak rate downwards. Each rate is 0.8 times the previous one, so the last rate is
about a thousandth of the peak."""
_PRECISION = 0.003
_FOREVER_S = 1e300


@lru_cache(maxsize=256)
def capacity_rps(service: ServiceLaw, slo_s: float, requests: int = _REQUESTS) -> float:
    """Return the highest rate of Poisson arrivals at which one replica's p99 time in system is at most `slo_s`.

    The result is accurate to 1 %, and at most `service.peak_rps`. All rates use the same arrivals, stretched in time,
    so that the result is reproducible. A smaller number of `requests` is faster: with 10,000, results of similar laws
    are comparable to 2 %.

    Raises:
        ValueError: no rate meets the objective.
    """
    unit = _unit_arrivals(requests)
    above = service.peak_rps
    if _meets(service, slo_s, unit / above):
        return above
    # Search downwards: with a batcher delay, low rates may miss an objective that higher rates meet.
    for _ in range(_STEPS if service.seconds(1) <= slo_s else 0):
        below = above * _STEP
        if _meets(service, slo_s, unit / below):
            break
        above = below
    else:
        raise ValueError(
            f"a replica meets an SLO of {1000 * slo_s:g} ms at no rate: a single request takes "
            f"{1000 * (service.seconds(1) + service.delay_s):g} ms; for example an SLO of "
            f"{3000 * (service.seconds(service.max_batch) + service.delay_s):g} ms"
        )
    while above - below > _PRECISION * below:
        middle = (above + below) / 2
        if _meets(service, slo_s, unit / middle):
            below = middle
        else:
            above = middle
    return below


def latencies(service: ServiceLaw, arrivals: Floats) -> Floats:
    """Return the time that each request spends in the system, in seconds.

    All requests go to one replica, which is ready from the start and rejects none. Unless executions share the replica
    or a lock, no events are needed: the batches are computed one after another, which is 100 times as fast.
    """
    if not _has_events(service):
        latency = np.empty(len(arrivals))
        _batch_by_batch(arrivals, _seconds(service), service.instances, service.delay_s, math.inf, 0, 0, latency)
        return latency
    case = Case("one replica", arrivals, float("inf"), service, float("inf"), 0.0, low=1, high=1)
    replica = engine(case, samples=np.zeros((SIGNALS, 1)), prefix=0, past=1)
    replica.start(0, ready_s=0.0)
    replica.advance(_FOREVER_S)
    return replica.state.latency.astype(np.float64)


def _has_events(service: ServiceLaw) -> bool:
    """Return whether executions delay each other, so that only the event loop can simulate them."""
    return service.shared or service.lock is not None


def _seconds(service: ServiceLaw) -> Floats:
    """Return the durations of batches with 0, 1, ... requests."""
    return np.array([0.0, *(service.seconds(size) for size in range(1, service.max_batch + 1))])


@jit
def _batch_by_batch(  # noqa: PLR0917  # arrays as they are
    arrivals: Floats,
    seconds: Floats,
    instances: int,
    delay_s: float,
    slo_s: float,
    unscored: int,
    most_late: int,
    latency: Floats,
) -> int:
    """Fill in the latencies of a replica whose batches take `seconds` by their number of requests.

    The first instance to become idle takes the waiting requests. With a delay, it waits for a full batch, or until the
    first request has waited that long. The result is the number of late requests, without the first `unscored`
    requests. The simulation ends once more than `most_late` are late.
    """
    count, max_batch = len(arrivals), len(seconds) - 1
    idle_at = np.zeros(instances)
    first, late = 0, 0
    while first < count and late <= most_late:
        instance = 0
        for other in range(1, instances):
            if idle_at[other] < idle_at[instance]:
                instance = other
        ready = arrivals[first] + delay_s
        if delay_s > 0 and first + max_batch - 1 < count:
            ready = min(ready, arrivals[first + max_batch - 1])
        start = max(idle_at[instance], ready)
        end = first + 1
        while end < count and end - first < max_batch and arrivals[end] <= start:
            end += 1
        idle_at[instance] = start + seconds[end - first]
        for request in range(first, end):
            latency[request] = idle_at[instance] - arrivals[request]
            if latency[request] > slo_s and request >= unscored:
                late += 1
        first = end
    return late


@lru_cache(maxsize=4)
def _unit_arrivals(requests: int) -> Floats:
    """Return the times of random arrivals with a mean rate of one."""
    return np.cumsum(np.random.Generator(np.random.PCG64(0)).standard_exponential(requests))


def _meets(service: ServiceLaw, slo_s: float, arrivals: Floats) -> bool:
    unscored = min(_WARM_UP, len(arrivals) // 20)
    most_late = math.floor(_MAX_LATE * (len(arrivals) - unscored) + 1e-9)
    if not _has_events(service):
        times, latency = _seconds(service), np.empty(len(arrivals))
        late = _batch_by_batch(arrivals, times, service.instances, service.delay_s, slo_s, unscored, most_late, latency)
        return late <= most_late
    return int(np.sum(latencies(service, arrivals)[unscored:] > slo_s)) <= most_late
