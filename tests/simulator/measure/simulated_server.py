"""A server with noise, simulated request by request, to which a search is put."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halcyon_measure.capacity.law_fit import Facts
from halcyon_measure.capacity.search import Goal, Observed, Search, Step

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedServer:
    """Batches of up to `batch` requests in constant + per_request x b, times lognormal noise of mean 1."""

    constant_s: float
    per_request_s: float
    batch: int = 1
    instances: int = 1
    noise: float = 0.02
    """Standard deviation of the logarithm of an execution's time."""
    overhead_s: float = 0.0005

    @property
    def saturation_rps(self) -> float:
        """Requests per second with full batches."""
        return self.instances * self.batch / (self.constant_s + self.per_request_s * self.batch)

    def latencies(self, due: Floats, seed: int) -> Floats:
        """Return the latency of each request that arrives at `due`."""
        draws = np.random.default_rng(seed).normal(-(self.noise**2) / 2, self.noise, len(due))
        arrivals, factors = due.tolist(), np.exp(draws).tolist()
        free = [0.0] * self.instances
        done: list[float] = []
        while (begin := len(done)) < len(arrivals):
            start = max(free[0], arrivals[begin])
            end = bisect_right(arrivals, start, begin, min(begin + self.batch, len(arrivals)))
            ready = start + (self.constant_s + self.per_request_s * (end - begin)) * factors[begin]
            heapq.heapreplace(free, ready)
            done += [ready] * (end - begin)
        return np.array(done) - due + self.overhead_s

    def facts(self, *, has_statistics: bool) -> Facts:
        """Return what runs of one caller and at saturation show."""
        single = self.constant_s + self.per_request_s + self.overhead_s
        if not has_statistics:
            return Facts(single_s=single, saturation_rps=0.998 * self.saturation_rps)
        return Facts(
            single_s=single,
            saturation_rps=0.998 * self.saturation_rps,
            constant_s=self.constant_s,
            per_request_s=self.per_request_s,
            largest=self.batch,
            mean=float(self.batch),
            instances=self.instances,
        )

    def observed(self, step: Step, search: Search) -> Observed:
        """Return what the run of a step shows, which ends as soon as it is decided."""
        warm = poisson(step.rate_rps, step.warm_up_s, 7919 + step.seed)
        due = poisson(step.rate_rps, step.duration_s, step.seed)
        both = np.concatenate([warm, due + step.warm_up_s])
        latency = self.latencies(both, 104_729 + step.seed)[len(warm) :]
        length, early = step.duration_s, search.early_end(step)
        if early is not None:
            early.arrivals(due)
            done = due + latency
            for second in range(int(step.duration_s)):
                ended = (done >= second) & (done < second + 1)
                late = int(np.count_nonzero(latency[ended] > early.objective_s))
                if early.second(int(ended.sum()), late):
                    length = second + 1.0
                    break
        measured = due < length
        return Observed(
            due=due[measured],
            latency=latency[measured],
            length_s=length,
            wall_s=length + step.warm_up_s + 2.0,
            ended_early=length < step.duration_s,
        )

    def search(self, goal: Goal, *, has_statistics: bool) -> Search:
        """Return the ended search for this server's capacity."""
        state = Search.begin(goal, self.facts(has_statistics=has_statistics), spent_s=20.0, runs=2)
        while (step := state.next()) is not None:
            state = state.after(step, self.observed(step, state))
        return state

    def true_capacity(self, objective_s: float, limit: float, *, requests: int = 300_000) -> float:
        """Return the largest rate at which at most `limit` of the requests are late, by bisection over long runs."""
        units = np.cumsum(np.random.default_rng(99).exponential(1.0, requests))
        low, high = 0.0, 0.999 * self.saturation_rps
        for _ in range(11):
            rate = (low + high) / 2
            late = np.mean(self.latencies(units / rate, 5)[requests // 50 :] > objective_s)
            low, high = (rate, high) if late <= limit else (low, rate)
        return low


def poisson(rate_rps: float, length_s: float, seed: int) -> Floats:
    """Return random arrivals."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_rps, int(rate_rps * length_s * 1.5) + 50)
    times = np.cumsum(gaps)
    return times[times < length_s]
