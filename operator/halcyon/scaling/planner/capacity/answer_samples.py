"""Samples of the requests sent to pods and answered by them, and rates and times computed from a series of samples.

Times are in seconds, rates in requests per second. Out of scope: the resulting capacity (`answer_evidence`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from halcyon.scaling.frozen import immutable

_MAX_SAMPLES = 96
"""Maximum number of samples. If there are more, every second sample of the older half is dropped."""
MIN_ANSWERS = 4.0
"""Minimum number of answers from which a time or a rate is computed."""

BY_GPU = 1
"""Value of a sample's field `HOT` if the pods are full because their GPUs have no free capacity."""
BY_ENGINE = 2
"""Value of a sample's field `HOT` if the pods are full because their engines have no free capacity."""
_GPU_FULL = 95.0
"""Minimum GPU utilisation, in percent per ready pod, at which a GPU counts as full."""
_ENGINE_FULL = 0.95
"""Minimum share of an engine's request capacity in use at which the engine counts as full."""
AT, ANSWERED, EXECUTING, WAITING, READY, HOT, QUEUED = range(7)
Sample = tuple[float, float, float, float, int, int, bool]
"""Sample of a model's pods: time, requests answered, requests in execution, requests waiting, ready pods, reason why
the pods are full (`BY_GPU`, `BY_ENGINE`, or 0 if they aren't), and whether requests are queued in balancers."""


@immutable(frozen=True, slots=True)
class RequestCounts:
    """Requests of a model in one reading, as the balancers count them."""

    ready: int
    """Number of pods that answer. Draining pods still answer."""
    answered: float
    executing: float
    waiting: float
    inside: float
    """Number of requests in progress or waiting."""
    gpu: float | None
    """GPU utilisation in percent, summed over the pods."""
    engine_used: float | None
    """Share of an engine's request capacity in use."""
    is_queued: bool
    """Whether requests are queued in balancers."""

    def has_restarted(self, answered: float) -> bool:
        """Return whether fewer requests were answered than in an earlier reading, so the counters have restarted."""
        return self.answered < answered - self.inside - MIN_ANSWERS


def _hot(counts: RequestCounts) -> int:
    """Return the reason why the pods are full (`HOT`) by the metrics of their GPUs or engines; 0 if they aren't."""
    if counts.engine_used is not None and counts.engine_used >= _ENGINE_FULL:
        return BY_ENGINE
    return BY_GPU if counts.gpu is not None and counts.gpu >= _GPU_FULL * counts.ready else 0


def with_sample(before: tuple[Sample, ...], at: float, counts: RequestCounts) -> tuple[Sample, ...]:
    """Return the samples with that of a reading at the time `at`. The number of answers never falls."""
    answered = max(counts.answered, before[-1][ANSWERED] if before else counts.answered)
    sample = (at, answered, counts.executing, counts.waiting, counts.ready, _hot(counts), counts.is_queued)
    return _thinned((*before, sample))


def _thinned(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Return the samples; if there are more than `_MAX_SAMPLES`, without every second sample of the older half."""
    if len(samples) <= _MAX_SAMPLES:
        return samples
    half = len(samples) // 2
    return (*samples[:half:2], *samples[half:])


def within(samples: Sequence[Sample], span_s: float) -> Sequence[Sample]:
    """Return the samples of the last `span_s` seconds, and the last sample before them."""
    first = bisect_right(samples, samples[-1][AT] - span_s, key=lambda s: s[AT]) - 1
    return samples[max(first, 0) :]


def waits(samples: Sequence[Sample], span_s: float, fits: float) -> bool:
    """Return whether more than `fits` requests were waiting at all times during the last `span_s` seconds.

    Return False if the number of ready pods changed during this time.
    """
    window, ready = within(samples, span_s), samples[-1][READY]
    return len(window) > 1 and all(s[WAITING] > fits and s[READY] == ready for s in window)


def queues(samples: Sequence[Sample], span_s: float, ready: int) -> bool:
    """Return whether requests were waiting in balancers at all times during the last `span_s` seconds.

    Return False if the number of ready pods was not always `ready`.
    """
    window = within(samples, span_s)
    return samples[-1][AT] - window[0][AT] >= span_s and all(s[QUEUED] and s[READY] == ready for s in window)


def time_in_pod(samples: Sequence[Sample]) -> float | None:
    """Return the time that the last answered request spent in its pod, in seconds.

    This is the horizontal distance between the curves of requests sent and answered. Return None if too few requests
    were answered since the previous sample, or if the request was sent before the first sample.
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
    """Return the rate of answers in the last `span_s` seconds.

    The result is (requests per second, seconds that the samples cover).
    """
    window = within(samples, span_s)
    covered = window[-1][AT] - window[0][AT]
    return ((window[-1][ANSWERED] - window[0][ANSWERED]) / covered if covered > 0 else 0.0), covered


def answers_s(samples: Sequence[Sample]) -> float:
    """Return how many seconds it took to answer the last `MIN_ANSWERS` requests.

    If the samples contain fewer answers, return the seconds that they cover.
    """
    newest = samples[-1]
    index = bisect_right(samples, newest[ANSWERED] - MIN_ANSWERS, key=lambda s: s[ANSWERED]) - 1
    return newest[AT] - samples[max(index, 0)][AT]


def most_ready(samples: Sequence[Sample], span_s: float) -> int:
    """Return the largest number of ready pods in the last `span_s` seconds."""
    return max(int(s[READY]) for s in within(samples, span_s))
