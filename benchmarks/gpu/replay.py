"""Recorded batches, played as pods that come one by one, as the operator would read them. Pure.

What a batch takes is drawn from the recording, the first of its size in a pod is the recorded first. Arrivals, batching and reads are
made here: Poisson arrivals, one instance, a batch of all that wait, a read every `READ_S`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from halcyon.api.documents.observation_report import Batches

READ_S = 5
"""As agents read `batch_stats`."""


@dataclass(frozen=True)
class Law:
    """What the batches of one model took on a GPU."""

    first_s: Mapping[int, float]
    """Seconds of the first execution, by rows in the batch."""
    seconds: Mapping[int, Sequence[float]]
    """Seconds of later ones."""

    @cached_property
    def means_s(self) -> Mapping[int, float]:
        """Seconds of a batch that is not the first, by rows; sizes between recorded ones lie on the line between them."""
        told = {rows: sum(took) / len(took) for rows, took in sorted(self.seconds.items())}
        means = dict(told)
        for (low, low_s), (high, high_s) in pairwise(told.items()):
            means |= {rows: low_s + (high_s - low_s) * (rows - low) / (high - low) for rows in range(low + 1, high)}
        return means

    @cached_property
    def nearest(self) -> Mapping[int, int]:
        """The recorded size that is next to each."""
        return {rows: min(self.seconds, key=lambda size: abs(size - rows)) for rows in self.means_s}


@dataclass
class Pod:
    """One pod with one instance that runs recorded batches."""

    law: Law
    source: random.Random
    counters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(executions, microseconds) by rows in the batch."""

    def run(self, rows: int) -> float:
        """Runs a batch; returns its seconds."""
        nearest, means_s = self.law.nearest[rows], self.law.means_s
        seconds = self.source.choice(self.law.seconds[nearest]) * means_s[rows] / means_s[nearest]
        if rows not in self.counters:
            seconds = self.law.first_s[nearest]
        count, us = self.counters.get(rows, (0, 0))
        self.counters[rows] = (count + 1, us + round(1e6 * seconds))
        return seconds

    def warmed(self, sizes: Sequence[int], iterations: int) -> Pod:
        """After a warm-up."""
        for rows in sizes:
            for _ in range(iterations):
                self.run(rows)
        return self

    def serve(self, rate: float, max_batch: int) -> Iterator[Batches]:
        """Serves so many rows per second for ever; what a read shows, every `READ_S`."""
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
        """The counters as they are now."""
        return tuple((rows, count, us) for rows, (count, us) in sorted(self.counters.items()))
