"""Implementation of `policy_view.PolicyView`: the samples of a run with the case's lag and signal faults.

Out of scope: taking the samples (`event_loop`), and the pods (`run`).

History: The samples before time 0, and the one at 0, are computed from the mean load of the first 30 s. Counters and
gauges have values as if each request had been computed alone. The history contains no batches. Windows begin at most
one hour before time 0, which changes no mean and no rate.

Faults: Noise changes neither `READY`, which Kubernetes counts, nor `batches`. If a sample is missing, all its signals
are missing. A frozen span repeats the last sample before it. `batches` has the values from the time of the newest
sample that isn't missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.case import Case
from halcyon_simulator.engine.event_loop import Floats
from halcyon_simulator.engine.policy_view import PolicyPod, SampleColumn

HISTORY = 3600
"""Duration of the history before the first sample, in seconds."""
_STEADY_S = 30.0
_ROUNDING = 1e-9
"""Tolerance for multiples of a period such as 0.1, which may be slightly below a whole second because of rounding."""
_GAUGES = [SampleColumn.WAITING, SampleColumn.INFLIGHT, SampleColumn.QUEUED]
_DRAWN = len(SampleColumn) - 1
"""Number of signals with independent noise. QUEUED has the noise of WAITING, which includes it."""
_COUNTERS = [
    SampleColumn.ARRIVED,
    SampleColumn.REFUSED,
    SampleColumn.ANSWERED,
    SampleColumn.BUSY_S,
    SampleColumn.QUEUE_S,
]


def history(case: Case, *, ready: int) -> Floats:
    """Return the array for the samples of a run, by (signal, HISTORY + second), with the history up to time 0."""
    samples = np.zeros((len(SampleColumn), HISTORY + math.floor(case.duration_s) + 1))
    span = min(_STEADY_S, case.duration_s)
    rate = float(np.searchsorted(case.arrivals, span)) / span
    seconds = np.arange(-HISTORY, 1, dtype=np.float64)
    past = samples[:, : HISTORY + 1]
    past[SampleColumn.ARRIVED] = past[SampleColumn.ANSWERED] = rate * seconds
    alone_s = case.service.seconds(1)
    past[SampleColumn.BUSY_S] = min(rate * alone_s, ready * case.service.instances) * seconds
    past[SampleColumn.INFLIGHT] = rate * alone_s
    past[SampleColumn.READY] = ready
    return samples


def kept_s(case: Case) -> int:
    """Return for how many seconds counts by batch size must be kept, so that the oldest possible query works."""
    faults = case.signal_faults
    blind_s = sum(until - begin for begin, until in (*faults.frozen, *faults.absent))
    return min(math.ceil(case.observation_lag_s + blind_s) + 64, 8192)


class ObservedRun:
    """View of one run for a policy. `run` sets its time and replicas before each tick."""

    def __init__(self, case: Case, *, samples: Floats, past: Floats) -> None:
        self._lag_s = case.observation_lag_s
        self._past = past
        self._noise = case.signal_faults.noise
        self._rng = np.random.Generator(np.random.PCG64([case.seed, 2]))
        self._raw = self._noisy = self._seen = samples
        self._done = HISTORY
        self._source, self._known = _sources(case, samples.shape[1])
        self._faulty = self._noise > 0 or self._known is not None or self._source is not None
        if self._faulty:
            self._noisy = samples.copy() if self._noise > 0 else samples
            self._seen = samples.copy()
        self._newest = HISTORY
        self._now = 0.0
        self._replicas = 0
        self._pods: tuple[PolicyPod, ...] = ()

    def at(self, now: float, *, replicas: int, pods: tuple[PolicyPod, ...]) -> None:
        """Set the time of the view to `now`. The samples up to this time must have been taken."""
        self._now, self._replicas, self._pods = now, replicas, pods
        self._newest = max(HISTORY + math.floor(now - self._lag_s + _ROUNDING), 1)
        if self._faulty and self._newest > self._done:
            self._disturb(self._done + 1, self._newest + 1)
            self._done = self._newest

    @property
    def now(self) -> float:
        """Time of the current tick, in seconds."""
        return self._now

    @property
    def replicas(self) -> int:
        """Number of replicas that the policy last wrote."""
        return self._replicas

    @property
    def pods(self) -> tuple[PolicyPod, ...]:
        """All existing pods, oldest first."""
        return self._pods

    def value(self, signal: SampleColumn) -> float | None:
        """Return the newest value of a signal, or None if the sample is missing."""
        value = float(self._seen[signal, self._newest])
        return None if math.isnan(value) else value

    def mean(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the mean of a gauge over the last `window_s` seconds, or None if all its samples are missing."""
        window = self._seen[signal, self._begin(window_s) + 1 : self._newest + 1]
        if self._known is not None:
            window = window[~np.isnan(window)]
            if len(window) == 0:
                return None
        return float(window.sum()) / len(window)

    def rate(self, signal: SampleColumn, window_s: float) -> float | None:
        """Return the increase per second of a counter over the last `window_s` seconds.

        The result is None if fewer than two samples are known.
        """
        begin, end = self._begin(window_s), self._newest
        if self._known is not None:
            known_seconds = np.flatnonzero(self._known[begin : end + 1])
            if len(known_seconds) < 2:
                return None
            begin, end = begin + int(known_seconds[0]), begin + int(known_seconds[-1])
        return float(self._seen[signal, end] - self._seen[signal, begin]) / (end - begin)

    def sampled_at(self) -> float | None:
        """Return the timestamp of the newest sample that isn't missing.

        In a frozen span, the timestamp is current although the values are old.
        """
        return float(self._last_known() - HISTORY)

    def batches(self) -> Mapping[int, tuple[int, float]]:
        """Return the cumulative (executions, seconds of computing) by batch size, as in Triton's `batch_stats`.

        The counts include all pods of the run so far.
        """
        second = self._last_known()
        if self._source is not None:
            second = int(self._source[second])
        if second <= HISTORY:
            return {}
        executions, seconds = self._past[(second - HISTORY) % len(self._past)].tolist()
        return {size: (int(number), seconds[size]) for size, number in enumerate(executions) if number}

    def _begin(self, window_s: float) -> int:
        return max(self._newest - max(round(window_s), 1), 0)

    def _last_known(self) -> int:
        second = self._newest
        if self._known is not None:
            while not self._known[second]:
                second -= 1
        return second

    def _disturb(self, begin: int, end: int) -> None:
        """Apply the faults to the samples in some columns. It must be called once for each column, in order."""
        if self._noise > 0:
            drawn = self._rng.standard_normal((end - begin, _DRAWN)).T
            factors = np.maximum(1 + self._noise * drawn, 0.0)
            factors = np.vstack([factors, factors[SampleColumn.WAITING]])
            block = self._raw[:, begin:end].copy()
            block[_GAUGES] *= factors[_GAUGES]
            increases = np.diff(self._raw[_COUNTERS, begin - 1 : end]) * factors[_COUNTERS]
            block[_COUNTERS] = self._noisy[_COUNTERS, begin - 1][:, None] + np.cumsum(increases, axis=1)
            self._noisy[:, begin:end] = block
        columns = slice(begin, end) if self._source is None else self._source[begin:end]
        self._seen[:, begin:end] = self._noisy[:, columns]
        if self._known is not None:
            self._seen[:, begin:end][:, ~self._known[begin:end]] = np.nan


def _sources(case: Case, columns: int) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """Return, for each column of samples, the column that it repeats, and whether it has samples.

    Each of the two results is None if the case doesn't have this fault.
    """
    faults = case.signal_faults
    seconds = np.arange(columns) - HISTORY
    source = known = None
    if faults.missing_share > 0 or faults.absent:
        rng = np.random.Generator(np.random.PCG64([case.seed, 3]))
        known = rng.random(columns) >= faults.missing_share
        for begin, until in faults.absent:
            known &= (seconds < begin) | (seconds >= until)
        known |= seconds <= 0
    if faults.frozen:
        source = np.arange(columns)
        for begin, until in faults.frozen:
            span = (seconds >= begin) & (seconds < until) & (seconds > 0)
            source[span] = max(math.ceil(begin) - 1, 0) + HISTORY
    return source, known
