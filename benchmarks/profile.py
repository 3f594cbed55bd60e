"""Load over time, the GPU time of a clairvoyant schedule for it, and the number of late responses. Pure."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A constant mean rate from `from_s` until the next phase begins."""

    from_s: float
    rate_rps: float


@dataclass(frozen=True)
class Profile:
    """A load as consecutive phases. The first starts at 0, and the last ends at `until_s`."""

    phases: tuple[Phase, ...]
    until_s: float

    def rate_at(self, at_s: float) -> float:
        """Return the mean rate at a time."""
        return next((phase.rate_rps for phase in reversed(self.phases) if phase.from_s <= at_s), 0.0)

    def spans(self) -> list[tuple[float, float, float]]:
        """Return (start, end, rate) of each phase."""
        ends = [*(phase.from_s for phase in self.phases[1:]), self.until_s]
        return [(phase.from_s, end, phase.rate_rps) for phase, end in zip(self.phases, ends, strict=True)]

    def arrivals(self, seed: int, *, variation: float = 1.0) -> Iterator[float]:
        """Return arrival times, Poisson by default. The same seed gives the same times.

        `variation` is the coefficient of variation of the times between two arrivals, which are gamma distributed.
        """
        draw = random.Random(seed)
        shape = variation**-2
        for begin, end, rate in self.spans():
            at = begin
            while rate > 0:
                at += draw.expovariate(rate) if variation == 1 else draw.gammavariate(shape, 1 / (shape * rate))
                if at >= end:
                    break
                yield at

    def scaled(self, factor: float) -> "Profile":
        """Return the load with each rate multiplied by the factor."""
        return Profile(tuple(Phase(phase.from_s, factor * phase.rate_rps) for phase in self.phases), self.until_s)

    @property
    def rises_s(self) -> list[float]:
        """Return the times at which the rate increases."""
        spans = self.spans()
        return [new[0] for old, new in itertools.pairwise(spans) if new[2] > old[2]]


def step(*, low_rps: float, high_rps: float, before_s: float, for_s: float, after_s: float) -> Profile:
    """Return a load that is low, then high for `for_s`, then low again."""
    return bursts(
        low_rps=low_rps, high_rps=high_rps, before_s=before_s, for_s=for_s, apart_s=0.0, count=1, after_s=after_s
    )


def bursts(
    *, low_rps: float, high_rps: float, before_s: float, for_s: float, apart_s: float, count: int, after_s: float
) -> Profile:
    """Return a low load with `count` bursts of `for_s` seconds, with gaps of `apart_s` between them."""
    phases, at = [Phase(0.0, low_rps)], before_s
    for _ in range(count):
        phases += [Phase(at, high_rps), Phase(at + for_s, low_rps)]
        at += for_s + apart_s
    return Profile(tuple(phases), at - apart_s + after_s)


def clairvoyant_pod_s(profile: Profile, *, capacity_rps: float, start_s: float, least: int = 1) -> float:
    """Return the pod-seconds of a scaler that knows the load in advance.

    At each time it has ceil(rate / capacity) replicas, each created one start time earlier. A replica is kept through a
    gap that is not longer than a start time. Otherwise it ends with the load, and a new one is started in time. Pods
    are billed from their creation, but not before the start of the profile.
    """
    spans = [(begin, end, max(math.ceil(rate / capacity_rps), least)) for begin, end, rate in profile.spans()]
    total = least * profile.until_s
    for level in range(least + 1, max(need for _, _, need in spans) + 1):
        intervals: list[tuple[float, float]] = []
        for begin, end, need in spans:
            if need < level:
                continue
            if intervals and begin - intervals[-1][1] <= start_s:
                intervals[-1] = (intervals[-1][0], end)
            else:
                intervals.append((max(begin - start_s, 0.0), end))
        total += sum(end - begin for begin, end in intervals)
    return total


@dataclass(frozen=True)
class Outcome:
    """Results of the requests of a load."""

    requests: int
    late: int
    """Number of responses that took longer than the objective."""
    failed: int
    """Number of requests that were rejected, timed out, or were never sent."""

    @property
    def violations_pct(self) -> float:
        """Return the percentage of requests that were late or failed."""
        return 100 * (self.late + self.failed) / self.requests if self.requests else math.nan


def outcome(latencies_s: Sequence[float | None], *, slo_s: float) -> Outcome:
    """Return the results for latencies in seconds, with None for a failed request."""
    failed = sum(latency is None for latency in latencies_s)
    late = sum(latency is not None and latency > slo_s for latency in latencies_s)
    return Outcome(len(latencies_s), late, failed)


def integral(changes: Sequence[tuple[float, int]], *, begin_s: float, end_s: float) -> float:
    """Return the integral of a number over time, between two times.

    `changes` are (time, number) in chronological order; the number is 0 before the first.
    """
    ends = [*(at for at, _ in changes[1:]), end_s]
    clipped = ((max(at, begin_s), min(until, end_s), count) for (at, count), until in zip(changes, ends, strict=False))
    return sum(count * max(until - at, 0.0) for at, until, count in clipped)
