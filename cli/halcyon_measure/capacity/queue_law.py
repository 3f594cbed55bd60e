"""A server as a queue: instances that execute batches of up to `batch` requests in constant + per_request x b seconds."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from halcyon_measure.results.columns import Floats


@dataclass(frozen=True)
class QueueLaw:
    """Service times of a server. A request of several rows counts as one."""

    constant_s: float
    per_request_s: float
    batch: int = 1
    """Requests of the largest batch."""
    instances: int = 1
    """Batches at a time, over all replicas."""
    overhead_s: float = 0.0
    """Latency beside waiting and execution: network, parsing, decoding."""

    def execution_s(self, requests: float) -> float:
        """Return the time of a batch of this many requests."""
        return self.constant_s + self.per_request_s * requests

    @property
    def saturation_rps(self) -> float:
        """Requests per second with full batches on all instances."""
        return self.instances * self.batch / self.execution_s(self.batch)

    def latencies(self, due: Floats) -> Floats:
        """Return the latency of each request, in seconds, if requests arrive at `due` (ascending) at an empty server."""
        if self.batch == 1:
            return self._single(due) - due + self.overhead_s
        return self._batched(due.tolist()) - due + self.overhead_s

    def _single(self, due: Floats) -> Floats:
        """Return when each request ends, if instances execute one request at a time.

        Executions are equally long, so requests end in their order, and each follows the one `instances` before it: it
        starts at the largest of due[j] + (number of executions since j) x S over all j before it.
        """
        service = self.execution_s(1)
        ends = np.empty_like(due)
        for first in range(min(self.instances, len(due))):
            own = due[first :: self.instances]
            before = np.arange(len(own)) * service
            ends[first :: self.instances] = np.maximum.accumulate(own - before) + before + service
        return ends

    def _batched(self, due: list[float]) -> Floats:
        """Return when each request ends, if a free instance takes what waits, at most a batch."""
        ends: list[float] = []
        sizes: list[int] = []
        free = [0.0] * self.instances
        begin, count, batch = 0, len(due), self.batch
        times = [self.execution_s(size) for size in range(batch + 1)]
        due += [math.inf] * batch  # so that a batch never reaches beyond the list
        # Hundreds of thousands of steps for each rate, so comparisons take the place of calls.
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
        """Return the law in words."""
        batched = f"{1000 * self.constant_s:.3g} + {1000 * self.per_request_s:.3g} b ms, batch {self.batch}"
        each = batched if self.batch > 1 else f"{1000 * self.execution_s(1):.3g} ms"
        return f"{each}, {self.instances} instance" + ("s" if self.instances > 1 else "")
