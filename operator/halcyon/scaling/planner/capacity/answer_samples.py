"""Samples of requests sent to pods and answered, and what follows from a series of them.

Times are in seconds, rates in requests per second. Out of scope: what it says about capacity (`answer_evidence`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_MAX_SAMPLES = 96
"""Maximum number of samples. Of the older half, every second one is dropped."""
MIN_ANSWERS = 4.0
"""Minimum number of answers to learn from."""

BY_GPU = 1
"""Value of `HOT` while the GPUs are full."""
BY_ENGINE = 2
"""Value of `HOT` while the room of the engines for requests is full."""
AT, ANSWERED, EXECUTING, WAITING, READY, HOT, QUEUED = range(7)
Sample = tuple[float, float, float, float, int, int, bool]
"""(time, requests answered, requests in execution, requests that wait longer than for the next batch, ready pods, what
is full: `BY_GPU`, `BY_ENGINE` or 0, whether requests wait in balancers because each pod holds as many as it may)."""


def thinned(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Return at most `_MAX_SAMPLES` of the samples."""
    if len(samples) <= _MAX_SAMPLES:
        return samples
    half = len(samples) // 2
    return (*samples[:half:2], *samples[half:])


def within(samples: Sequence[Sample], span_s: float) -> Sequence[Sample]:
    """Return the samples of the last `span_s` seconds, with the one before them."""
    first = bisect_right(samples, samples[-1][AT] - span_s, key=lambda s: s[AT]) - 1
    return samples[max(first, 0) :]


def waits(samples: Sequence[Sample], span_s: float, fits: float) -> bool:
    """Return whether more than `fits` requests have waited for the last `span_s` seconds, with the same ready pods."""
    window, ready = within(samples, span_s), samples[-1][READY]
    return len(window) > 1 and all(s[WAITING] > fits and s[READY] == ready for s in window)


def queues(samples: Sequence[Sample], span_s: float, ready: int) -> bool:
    """Return whether requests have waited in balancers for the last `span_s` seconds, with the same ready pods."""
    window = within(samples, span_s)
    return samples[-1][AT] - window[0][AT] >= span_s and all(s[QUEUED] and s[READY] == ready for s in window)


def time_in_pod(samples: Sequence[Sample]) -> float | None:
    """Return how long the request that was answered last has been in its pod, in seconds.

    It is the horizontal distance between the curves of the requests sent and answered. None if nothing was answered since
    the sample before, too few were answered, or that request was sent before the first sample.
    """
    first, newest = samples[0], samples[-1]
    answered = newest[ANSWERED]
    if (
        len(samples) < 2
        or answered <= samples[-2][ANSWERED]
        or answered < first[ANSWERED] + max(MIN_ANSWERS, first[EXECUTING])
    ):
        return None
    index = bisect_left(samples, answered, key=_sent)
    if index == 0 or index == len(samples):
        return None
    before, after = samples[index - 1], samples[index]
    share = (answered - _sent(before)) / (_sent(after) - _sent(before))
    return newest[AT] - before[AT] - share * (after[AT] - before[AT])


def _sent(sample: Sample) -> float:
    return sample[ANSWERED] + sample[EXECUTING]


def answer_rate(samples: Sequence[Sample], span_s: float) -> tuple[float, float]:
    """Return the requests per second answered in the last `span_s` seconds, and the seconds that samples cover of them."""
    window = within(samples, span_s)
    covered = window[-1][AT] - window[0][AT]
    return ((window[-1][ANSWERED] - window[0][ANSWERED]) / covered if covered > 0 else 0.0), covered


def answers_s(samples: Sequence[Sample]) -> float:
    """Return the seconds in which the last `MIN_ANSWERS` requests were answered, or those that samples cover."""
    newest = samples[-1]
    index = bisect_right(samples, newest[ANSWERED] - MIN_ANSWERS, key=lambda s: s[ANSWERED]) - 1
    return newest[AT] - samples[max(index, 0)][AT]


def most_ready(samples: Sequence[Sample], span_s: float) -> int:
    """Return the largest number of ready pods in the last `span_s` seconds."""
    return max(int(s[READY]) for s in within(samples, span_s))
