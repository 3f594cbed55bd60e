"""True servers, apart from the code that is judged: a table of batch times for each number of instances, and two event loops.

The search never gets a law, but the latencies and the batch times of its loads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.jit import jit
from halcyon_tune.points import Callers, Configuration, Load, Point, Rate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_TRUTH_REQUESTS = 30_000
_STEPS = 9
_POINT_S = 15.0
"""Time of a point of a search, with the change of the configuration."""
_CLOSED_BATCHES = 400


@dataclass(frozen=True)
class Law:
    """Batch times of a model: `seconds[instances][rows]`, and the batch from which memory is too small."""

    name: str
    seconds: Mapping[int, Floats]
    memory_batch: int = 10**9
    """Rows of a batch, times the instances, above which the memory is too small."""
    capacities: dict[tuple[Configuration, float], float] = field(default_factory=dict, compare=False)

    def fits(self, configuration: Configuration) -> bool:
        """Return whether the configuration fits into memory."""
        return configuration.max_batch * configuration.instances <= self.memory_batch

    def late_share(self, configuration: Configuration, rate_rps: float, objective_s: float) -> float:
        """Return the share of requests above the objective, in the long run."""
        latencies_s = self.latencies(configuration, rate_rps, _TRUTH_REQUESTS, seed=12345)
        return float(np.mean(latencies_s[_TRUTH_REQUESTS // 20 :] > objective_s))

    def latencies(
        self,
        configuration: Configuration,
        rate_rps: float,
        requests: int,
        *,
        seed: int,
        factor: float = 1.0,
        counts: Floats | None = None,
    ) -> Floats:
        """Return the latencies of random arrivals, with all batch times multiplied by a factor.

        The executions of each size are added to `counts`.
        """
        due = _unit_arrivals(requests, seed) / rate_rps
        table = self.seconds[configuration.instances] * factor
        preferred = np.array(configuration.preferred, dtype=np.int64)
        counts = np.zeros(configuration.max_batch + 1) if counts is None else counts
        return _open_loop(
            due, table, configuration.max_batch, configuration.instances, configuration.delay_s, counts, preferred
        )

    def capacity(self, configuration: Configuration, objective_s: float) -> float:
        """Return the true largest rate of which at most 1 % is late; 0 if there is none, or no memory."""
        key = configuration, objective_s
        if key not in self.capacities:
            self.capacities[key] = self._capacity(configuration, objective_s) if self.fits(configuration) else 0.0
        return self.capacities[key]

    def _capacity(self, configuration: Configuration, objective_s: float) -> float:
        table = self.seconds[configuration.instances]
        sizes = np.arange(1, configuration.max_batch + 1)
        peak = float(configuration.instances * np.max(sizes / table[1 : configuration.max_batch + 1]))
        low, high = 0.0, peak
        for rate in np.geomspace(1, 0.02, 24) * peak * 0.999:
            if self.late_share(configuration, rate, objective_s) <= 0.01:
                low = float(rate)
                break
            high = float(rate)
        else:
            return 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if self.late_share(configuration, middle, objective_s) <= 0.01:
                low = middle
            else:
                high = middle
        return low


@dataclass
class SimulatedTrial:
    """The measuring side for a law: each point is slower or faster by a random factor, as on a noisy machine."""

    law: Law
    noise: float
    seed: int
    requests: int = 3000
    """Requests of a point at a rate."""
    points: int = 0

    def measure(self, configuration: Configuration, load: Load) -> Point:
        """Return a point, or its failure if the configuration doesn't fit into memory."""
        self.points += 1
        random = np.random.default_rng([self.seed, self.points])
        if not self.law.fits(configuration):
            return Point(
                configuration=configuration, load=load, seconds=_POINT_S, failure="Memory", why="CUDA out of memory"
            )
        factor = math.exp(self.noise * float(random.standard_normal()))
        if isinstance(load, Callers):
            return self._closed(configuration, load, factor)
        return self._open(configuration, load, factor, int(random.integers(2**31)))

    def _open(self, configuration: Configuration, load: Rate, factor: float, seed: int) -> Point:
        # A warm-up comes before the requests that count.
        warm_up = self.requests // 10
        count = self.requests + warm_up
        counts = np.zeros(configuration.max_batch + 1)
        latency = self.law.latencies(configuration, load.rate_rps, count, seed=seed, factor=factor, counts=counts)
        table = self.law.seconds[configuration.instances] * factor
        due = np.cumsum(np.random.default_rng(seed).exponential(1 / load.rate_rps, count))
        begin, end = due[warm_up], due[-1]
        answered = int(np.sum((due + latency > begin) & (due + latency <= end)))
        counted = latency[warm_up:]
        return Point(
            configuration=configuration,
            load=load,
            seconds=_POINT_S,
            throughput_rps=answered / float(end - begin),
            mean_s=float(np.mean(counted)),
            p99_s=float(np.quantile(counted, 0.99)),
            requests=self.requests,
            batches={rows: (int(n), float(n * table[rows])) for rows, n in enumerate(counts) if n > 0},
        )

    def _closed(self, configuration: Configuration, load: Callers, factor: float) -> Point:
        table = self.law.seconds[configuration.instances] * factor
        counts = np.zeros(configuration.max_batch + 1)
        length, latency = _closed_loop(
            load.callers,
            table,
            configuration.max_batch,
            configuration.instances,
            configuration.delay_s,
            counts,
            np.array(configuration.preferred, dtype=np.int64),
        )
        answered = float(np.sum(counts * np.arange(len(counts))))
        batches = {rows: (int(n), float(n * table[rows])) for rows, n in enumerate(counts) if n > 0}
        return Point(
            configuration=configuration,
            load=load,
            seconds=_POINT_S,
            throughput_rps=answered / length,
            mean_s=latency / answered,
            p99_s=latency / answered,
            requests=int(answered),
            batches=batches,
        )


@lru_cache(maxsize=4)
def _unit_arrivals(requests: int, seed: int) -> Floats:
    """Return the times of random arrivals with a mean rate of one."""
    return np.cumsum(np.random.default_rng(seed).exponential(size=requests))


@jit
def _batch_rows(waiting: int, preferred: Ints) -> int:
    """Return how many of the waiting requests a batch takes: the largest preferred size that they fill, or else all."""
    best = 0
    for size in preferred:
        if best < size <= waiting:
            best = size
    return best if best > 0 else waiting


@jit
def _open_loop(  # noqa: PLR0917  # arrays as they are
    due: Floats, table: Floats, max_rows: int, instances: int, delay: float, counts: Floats, preferred: Ints
) -> Floats:
    """Return latencies: the instance that is free first takes all that wait, once a batch is full or its delay is over."""
    latency = np.empty(len(due))
    free = np.zeros(instances)
    head = 0
    while head < len(due):
        which = int(np.argmin(free))
        full = preferred[0] if len(preferred) > 0 else max_rows
        ready = due[head] + delay
        if delay > 0 and head + full - 1 < len(due):
            ready = min(ready, due[head + full - 1])
        start = max(free[which], ready)
        tail = head + 1
        while tail < len(due) and tail - head < max_rows and due[tail] <= start:
            tail += 1
        tail = head + _batch_rows(tail - head, preferred)
        end = start + table[tail - head]
        for request in range(head, tail):
            latency[request] = end - due[request]
        free[which] = end
        counts[tail - head] += 1
        head = tail
    return latency


@jit
def _closed_loop(  # noqa: PLR0917  # arrays as they are
    callers: int, table: Floats, max_rows: int, instances: int, delay: float, counts: Floats, preferred: Ints
) -> tuple[float, float]:
    """Fill the executions by size, and return the length of the run and the sum of all latencies."""
    due = np.arange(callers) * 1e-5
    free = np.zeros(instances)
    total = 0.0
    end = 0.0
    for _ in range(_CLOSED_BATCHES):
        which = int(np.argmin(free))
        order = np.argsort(due)
        first = due[order[0]]
        full = preferred[0] if len(preferred) > 0 else max_rows
        ready = first + delay
        if delay > 0 and callers >= full:
            ready = min(ready, due[order[full - 1]])
        start = max(free[which], ready)
        size = 0
        while size < min(max_rows, callers) and due[order[size]] <= start:
            size += 1
        size = _batch_rows(size, preferred)
        end = start + table[size]
        for place in range(size):
            total += end - due[order[place]]
            due[order[place]] = end
        free[which] = end
        counts[size] += 1
    return end, total
