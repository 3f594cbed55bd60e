"""Queueing model of a server. Instances execute batches of up to `batch` requests.

A batch of b requests takes constant + per_request x b seconds.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from halcyon_measure.results.columns import Floats


@dataclass(frozen=True)
class QueueLaw:
    """Parameters of a server's queueing model. A request of several rows counts as one request."""

    constant_s: float
    per_request_s: float
    batch: int = 1
    """Number of requests in the largest batch."""
    instances: int = 1
    """Number of batches executed at the same time, over all replicas."""
    overhead_s: float = 0.0
    """Latency in addition to waiting and execution, in seconds: network, parsing, decoding."""

    def execution_s(self, requests: float) -> float:
        """Return the execution time of a batch of this many requests, in seconds."""
        return self.constant_s + self.per_request_s * requests

    @property
    def saturation_rps(self) -> float:
        """Requests per second with full batches on all instances."""
        return self.instances * self.batch / self.execution_s(self.batch)

    def latencies(self, due: Floats) -> Floats:
        """Return the latency of each request in seconds, for requests that arrive at an idle server at `due`."""
        if self.batch == 1:
            return self._single(due) - due + self.overhead_s
        return self._batched(due.tolist()) - due + self.overhead_s

    def _single(self, due: Floats) -> Floats:
        """Return the end time of each request if instances execute one request at a time.

        All executions take the same time S, so requests are assigned to the instances in turn. Request k of an instance
        starts at the maximum of due[j] + (k - j) x S over j from 0 to k.
        """
        service = self.execution_s(1)
        ends = np.empty_like(due)
        for first in range(min(self.instances, len(due))):
            arrivals = due[first :: self.instances]
            served_s = np.arange(len(arrivals)) * service
            ends[first :: self.instances] = np.maximum.accumulate(arrivals - served_s) + served_s + service
        return ends

    def _batched(self, due: list[float]) -> Floats:
        """Return the end time of each request if a free instance takes all waiting requests, up to a full batch."""
        ends: list[float] = []
        sizes: list[int] = []
        free = [0.0] * self.instances
        begin, count, batch = 0, len(due), self.batch
        times = [self.execution_s(size) for size in range(batch + 1)]
        due += [math.inf] * batch  # so that a batch never reaches beyond the list
        # There are hundreds of thousands of steps for each rate, so comparisons are used instead of function calls.
        while begin < count:
            start = free[0]
            if (arrived := due[begin]) > start:
                start = arrived
            end = bisect_right(due, start, begin, begin + batch)
            done = start + times[end - begin]
            ends.append(done)
            sizes.append(end - begin)
            heapq.heapreplace(free, done)
            begin = end
        return np.repeat(np.array(ends), sizes)

    def text(self) -> str:
        """Return a description of the law in words."""
        batched = f"{1000 * self.constant_s:.3g} + {1000 * self.per_request_s:.3g} b ms, batch {self.batch}"
        execution = batched if self.batch > 1 else f"{1000 * self.execution_s(1):.3g} ms"
        return f"{execution}, {self.instances} instance" + ("s" if self.instances > 1 else "")
