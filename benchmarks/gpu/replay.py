"""Replay of recorded batches as pods that start one by one, in the form in which the operator reads them. Pure.

The duration of a batch is drawn from the recording. The first batch of a size in a pod takes as long as the recorded
first one. Arrivals, batching and reads are simulated: Poisson arrivals, one instance, batches of all waiting rows, a
read every `READ_S`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from halcyon.api.documents.observation_report import Batches

READ_S = 5
"""Interval in seconds at which agents read `batch_stats`."""


@dataclass(frozen=True)
class Law:
    """Recorded batch durations of one model on a GPU."""

    first_s: Mapping[int, float]
    """Duration of the first execution in seconds, by rows in the batch."""
    seconds: Mapping[int, Sequence[float]]
    """Durations of later executions in seconds, by rows in the batch."""

    @cached_property
    def means_s(self) -> Mapping[int, float]:
        """Return the mean duration in seconds of batches after the first, by rows.

        Sizes between recorded ones are interpolated linearly.
        """
        recorded = {rows: sum(took) / len(took) for rows, took in sorted(self.seconds.items())}
        means = dict(recorded)
        for (low, low_s), (high, high_s) in pairwise(recorded.items()):
            means |= {rows: low_s + (high_s - low_s) * (rows - low) / (high - low) for rows in range(low + 1, high)}
        return means

    @cached_property
    def nearest(self) -> Mapping[int, int]:
        """Return, for each size, the nearest recorded size."""
        return {rows: min(self.seconds, key=lambda size: abs(size - rows)) for rows in self.means_s}


@dataclass
class Pod:
    """A pod with one instance that runs recorded batches."""

    law: Law
    source: random.Random
    counters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(executions, microseconds) by rows in the batch."""

    def run(self, rows: int) -> float:
        """Run a batch, and return its duration in seconds."""
        nearest, means_s = self.law.nearest[rows], self.law.means_s
        seconds = self.source.choice(self.law.seconds[nearest]) * means_s[rows] / means_s[nearest]
        if rows not in self.counters:
            seconds = self.law.first_s[nearest]
        count, us = self.counters.get(rows, (0, 0))
        self.counters[rows] = (count + 1, us + round(1e6 * seconds))
        return seconds

    def warmed(self, sizes: Sequence[int], iterations: int) -> Pod:
        """Run a warm-up, and return the pod."""
        for rows in sizes:
            for _ in range(iterations):
                self.run(rows)
        return self

    def serve(self, rate: float, max_batch: int) -> Iterator[Batches]:
        """Serve `rate` rows per second forever, and yield the counters every `READ_S` seconds."""
        free, read = 0.0, float(READ_S)
        due = self.source.expovariate(rate)
        waiting = 0
        while True:
            now = max(free, due)
            while due <= now:
                waiting, due = waiting + 1, due + self.source.expovariate(rate)
            while now >= read:
                yield self.read()
                read += READ_S
            rows = min(waiting, max_batch)
            waiting -= rows
            free = now + self.run(rows) if rows else now

    def read(self) -> Batches:
        """Return the current counters."""
        return tuple((rows, count, us) for rows, (count, us) in sorted(self.counters.items()))
