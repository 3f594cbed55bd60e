"""Evidence of what pods answer: a capacity that doesn't depend on Triton's batch statistics.

Triton's compute times are those of `execute`. Models that answer after `execute` has returned (decoupled models, engines
with their own batching, asynchronous Python) have batch times of microseconds for requests of seconds. Other models have
no batch times at all. So the service line is believed only while the answers don't contradict it.

Three curves are known from the balancers' counters: requests sent to pods, requests answered, and their difference, which
is the number of requests in execution. By Little's law, a ready pod answers (requests in execution per pod) / (time in the
pod). The time in the pod is the horizontal distance between the two curves. It is right from the first answer on, while a
rate of answers is right only after several times that time, because answers come in bursts.

| question                             | answered yes if                                                                 |
| ------------------------------------ | ------------------------------------------------------------------------------- |
| Is the service line contradicted?    | requests take three times as long as full batches would, or full pods answer    |
|                                      | less than half of what the line promises                                        |
| Are the pods full?                   | requests wait all the time, or time in the pod grows together with the requests |
|                                      | in it, or GPUs are full and requests take longer than alone                     |
| Do the pods share a limit?           | full pods answer hardly more than fewer full pods did                           |

Answers of pods that aren't full only show what a pod can do at least. Out of scope: what the plan does with the result
(`plan`, `parts`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.reading import Reading

_FACTOR = 3.0
"""Time in a pod that contradicts the service line, as a multiple of the time that the line predicts for it."""
_MIN_S = 0.25
"""Seconds added to this time, because transfers and the sampling of the counters aren't part of a batch."""
_AGREED_FACTOR, _AGREED_S = 2.0, 0.02
"""Time in a pod up to which the line is believed again: a multiple of the time that it predicts, plus seconds."""
_AGREE_S = 60.0
"""Seconds for which requests must take no longer."""
_RELAX_S = 600.0
"""Seconds in which the shortest time in a pod doubles, unless it is seen again. Requests may get longer."""
_PROMISED = 0.5
"""Answers of full pods, as a share of what the line promises, below which the line is contradicted."""
_MIN_ANSWERS = 4.0
"""Minimum number of answers to learn from."""
_GROWN = 1.5
"""Time in a pod, as a multiple of the shortest, from which requests hinder each other."""
_GPU_FULL = 95.0
"""GPU utilisation, in percent per ready pod, from which a GPU counts as full."""
_LEVEL = 0.25
"""Largest relative change of the requests in execution that counts as none."""
_MARGINAL = 0.4
"""Smallest gain from additional pods, as a share of what independent pods would bring. Below it they share a limit."""
_LIFTED = 1.2
"""Increase of all pods' answers, as a factor, after which a shared limit no longer holds."""
_SHARED_S = 1800.0
"""Seconds after which a shared limit is tested again by allowing more replicas."""
_SHORT_S, _WINDOW_S = 3.0, 10.0
"""Minimum windows, in seconds, for rates of answers: of full pods, and of others."""
_PEAK_S = 300.0
"""Seconds for which the answers of fewer full pods are compared with those of more: pods may become slower meanwhile."""
_MAX_SAMPLES = 96
"""Maximum number of samples. Of the older half, every second one is dropped."""

_AT, _ANSWERED, _EXECUTING, _WAITING, _READY, _HOT = range(6)
_Peaks = tuple[tuple[int, float, float], ...]
_Sample = tuple[float, float, float, float, int, bool]
"""(time, requests answered, requests in execution, requests that wait longer than for the next batch, ready pods, whether
their GPUs are full)."""


@immutable(frozen=True, slots=True)
class SharedLimit:
    """Limit that all pods share, such as a database or a lock."""

    replicas: int
    """Replicas that are enough to reach it: one more than answer as much if they were independent."""
    rps: float
    """Requests per second that all pods together answered."""
    pods: int
    """Number of pods that answered no more than that."""
    at: float
    """Time when it was found."""


@immutable(frozen=True, slots=True)
class AnswerEvidence:
    """What the pods of a model have been seen to do."""

    rps: float | None = None
    """Requests per second that a ready pod answers while it is full; None if no pod has been full."""
    at_once: float = 1.0
    """Requests in execution in a pod then."""
    seconds: float = 0.0
    """Newest time in the pod, in seconds; 0 if unknown."""
    fastest_s: float | None = None
    """Shortest time in the pod, in seconds."""
    least_rps: float = 0.0
    """Highest rate of answers per ready pod seen so far, full or not."""
    contradicts_at: float | None = None
    """Time since which the answers contradict the service line; None if they agree with it."""
    agrees_at: float | None = None
    """Time since which the answers agree with the line again."""
    is_in_force: bool = False
    """Whether the answers contradict the line, so that `rps` is the capacity."""
    line_rps: float | None = None
    """Capacity by the service line when it was contradicted; None if there is no line."""
    peaks: tuple[tuple[int, float, float], ...] = ()
    """(ready pods, requests per second of all of them, time) while they were full without a break, with ascending numbers of
    pods."""
    shared: SharedLimit | None = None
    anchor: tuple[float, float, float, float] | None = None
    """(time, requests answered, requests in execution, request-seconds in execution since) at the last agreement."""
    samples: tuple[_Sample, ...] = ()
    """Recent samples, oldest first; empty while the answers agree with the line and nothing waits."""

    def with_reading(self, at: float, reading: Reading, replica: Replica | None) -> AnswerEvidence:
        """Return the evidence updated with a plausible reading.

        `replica` is the capacity by the service line; None if there is no line.
        """
        # Draining pods still answer.
        ready = sum(pod.phase in {"ready", "draining"} for pod in reading.pods)
        inside, waiting = reading.inflight or 0.0, reading.waiting or 0.0
        answered = (reading.arrived or 0.0) - (reading.rejected or 0.0) - inside
        executing = max(inside - waiting, 0.0)
        anchor = self.anchor
        if anchor is None or at < anchor[0] or answered < anchor[1] - inside - _MIN_ANSWERS or not ready:
            return self._without_samples((at, answered, executing, 0.0))
        if at - anchor[0] <= 0 or (self.samples and at <= self.samples[-1][_AT]):
            return self
        last_at = self.samples[-1][_AT] if self.samples else anchor[0]
        exposed = anchor[3] + anchor[2] * (at - last_at)
        anchor = (anchor[0], anchor[1], executing, exposed)
        limit_s = _limit_s(replica, executing / ready)
        if (
            replica is not None
            and waiting <= ready * replica.max_batch * replica.instances
            and not self.is_in_force
            and self.shared is None
            and exposed <= limit_s * (max(answered - anchor[1], 0.0) + 1)
        ):
            return self._without_samples((at, answered, executing, 0.0))
        hot = reading.gpu is not None and reading.gpu >= _GPU_FULL * ready
        before = self.samples
        answered = max(answered, before[-1][_ANSWERED] if before else answered)
        samples = _thinned((*before, (at, answered, executing, waiting, ready, hot)))
        return self._judged(at, samples, anchor, replica, limit_s, reading)

    def replica(self) -> Replica | None:
        """Return the capacity of a replica by its answers; None if the service line is believed or no pod was full."""
        if not self.is_in_force or self.rps is None:
            return None
        slots = max(round(self.at_once), 1)
        return Replica(ServiceLine(slots / self.rps, 0.0), 1, slots, residual=0.0)

    def describe(self) -> str:
        """Return why the service line is not believed, as a sentence without a subject of its own."""
        line = "Triton reports no batch times"
        if self.line_rps is not None:
            line = f"Triton's batch times promise {self.line_rps:.4g} req/s per replica"
        seen = f"requests take {self.seconds:.3g} s in a pod"
        if self.rps is None:
            return f"{line}, but {seen}; no pod has been full yet, so replicas are kept"
        return f"{line}, but {seen}, and a full pod answers {self.rps:.3g} req/s with {self.at_once:.0f} at once"

    def _without_samples(self, anchor: tuple[float, float, float, float]) -> AnswerEvidence:
        return self._with(anchor=anchor, samples=(), contradicts_at=None)

    def _judged(  # noqa: C901, PLR0917  # one pass over the questions of the table above
        self,
        at: float,
        samples: tuple[_Sample, ...],
        anchor: tuple[float, float, float, float],
        replica: Replica | None,
        limit_s: float,
        reading: Reading,
    ) -> AnswerEvidence:
        """Return the evidence after the newest of `samples`."""
        seconds = _time_in_pod(samples)
        new = self._with(anchor=anchor, samples=samples, contradicts_at=self.contradicts_at)
        if seconds is None:
            return new
        ready = int(samples[-1][_READY])
        window_s = max(seconds, _WINDOW_S)
        total, covered_s = _rate(samples, window_s)
        is_slow = seconds > limit_s
        # Requests that fit into the next batches don't wait for long, unless the line is wrong.
        fits = 0.0 if replica is None or is_slow else float(ready * replica.max_batch * replica.instances)
        waits = _waits(samples, _recent_s(seconds), fits)
        peaks, shared = self.peaks, self.shared
        if samples[-1][_WAITING] <= fits and shared is None:
            peaks = ()
        elif self.is_in_force and waits and covered_s >= window_s and _waits(samples, window_s, fits):
            peaks, shared = _with_peak(at, peaks, shared, ready, total)
        if shared is not None and at - shared.at > _SHARED_S:
            peaks, shared = (), None
        is_short = (
            replica is not None
            and waits
            and covered_s >= _WINDOW_S
            and total < _PROMISED * ready * replica.peak_rps
            and reading.queued is not None
            # Batches are full: a further one waits in each pod. Otherwise our own bound may keep them small.
            and (reading.waiting or 0.0) - reading.queued >= ready * replica.max_batch * replica.instances
        )
        contradicts_at, agrees_at, in_force = self.contradicts_at, None, self.is_in_force
        if is_slow or is_short:
            contradicts_at = at if contradicts_at is None else contradicts_at
            in_force = in_force or at - contradicts_at >= max(1.0, seconds / 10)
        else:
            contradicts_at = None
            # What full pods answered contradicts the line, too, as long as requests don't take as short as batches.
            if (
                in_force
                and replica is not None
                and not waits
                and seconds <= (limit_s - _MIN_S) * _AGREED_FACTOR / _FACTOR + _AGREED_S
            ):
                agrees_at = at if self.agrees_at is None else self.agrees_at
                in_force = at - agrees_at < _AGREE_S
        passed_s = at - self.samples[-1][_AT] if self.samples else 0.0
        fastest = min(seconds, (self.fastest_s or math.inf) * (1 + passed_s / _RELAX_S))
        rps, at_once = self.rps, self.at_once
        found = None if shared is not None else _full_rate(samples, seconds, fastest, waits=waits)
        if found is not None and in_force:
            rate, held = found
            share = 1.0
            if rps is not None:
                # What pods do when they are barely full is less than what they can do.
                share = min(1.0, (2 if rate > rps else 1) * passed_s / window_s)
            rps = rate if rps is None else rps + share * (rate - rps)
            at_once = at_once + share * (held - at_once)
        elif in_force and rps is not None and covered_s >= window_s:
            # Pods that aren't full answer at least this much.
            rps = max(rps, (total - math.sqrt(total / covered_s)) / _most_ready(samples, window_s))
        if shared is not None and peaks:
            rps = max(rate / count for count, rate, _ in peaks) if rps is not None else None
        least = self.least_rps
        if covered_s >= window_s:
            least = max(least, total / _most_ready(samples, window_s))
        return AnswerEvidence(
            rps,
            at_once,
            seconds,
            fastest,
            least,
            contradicts_at,
            agrees_at,
            in_force,
            None if replica is None else replica.peak_rps,
            peaks,
            shared,
            anchor,
            samples,
        )

    def _with(
        self,
        *,
        anchor: tuple[float, float, float, float],
        samples: tuple[_Sample, ...],
        contradicts_at: float | None,
    ) -> AnswerEvidence:
        return AnswerEvidence(
            self.rps,
            self.at_once,
            self.seconds,
            self.fastest_s,
            self.least_rps,
            contradicts_at,
            self.agrees_at,
            self.is_in_force,
            self.line_rps,
            self.peaks,
            self.shared,
            anchor,
            samples,
        )

    def shifted(self, by_s: float) -> AnswerEvidence:
        """Return the evidence with its times moved by `by_s` seconds."""
        moved = self.agrees_at
        shared = self.shared
        return replace(
            self,
            contradicts_at=None if self.contradicts_at is None else self.contradicts_at + by_s,
            agrees_at=None if moved is None else moved + by_s,
            shared=None if shared is None else replace(shared, at=shared.at + by_s),
            peaks=tuple((count, rate, seen + by_s) for count, rate, seen in self.peaks),
            anchor=None,
            samples=(),
        )


def _limit_s(replica: Replica | None, held: float) -> float:
    """Return the seconds in a pod that contradict the service line, for a pod that executes `held` requests; 0 without one."""
    if replica is None:
        return 0.0
    rounds = max(held / (replica.max_batch * replica.instances), 1.0)
    return _FACTOR * rounds * replica.batch_s + _MIN_S


def _thinned(samples: tuple[_Sample, ...]) -> tuple[_Sample, ...]:
    if len(samples) <= _MAX_SAMPLES:
        return samples
    half = len(samples) // 2
    return (*samples[:half:2], *samples[half:])


def _window(samples: Sequence[_Sample], span_s: float) -> Sequence[_Sample]:
    """Return the samples of the last `span_s` seconds, with the one before them."""
    first = bisect_right(samples, samples[-1][_AT] - span_s, key=lambda s: s[_AT]) - 1
    return samples[max(first, 0) :]


def _waits(samples: Sequence[_Sample], span_s: float, fits: float) -> bool:
    """Return whether more than `fits` requests have waited for the last `span_s` seconds, with the same ready pods."""
    window, ready = _window(samples, span_s), samples[-1][_READY]
    return len(window) > 1 and all(s[_WAITING] > fits and s[_READY] == ready for s in window)


def _time_in_pod(samples: Sequence[_Sample]) -> float | None:
    """Return how long the request that was answered last has been in its pod, in seconds.

    It is the horizontal distance between the curves of the requests sent and answered. None if nothing was answered since
    the sample before, too few were answered, or that request was sent before the first sample.
    """
    first, newest = samples[0], samples[-1]
    answered = newest[_ANSWERED]
    if (
        len(samples) < 2
        or answered <= samples[-2][_ANSWERED]
        or answered < first[_ANSWERED] + max(_MIN_ANSWERS, first[_EXECUTING])
    ):
        return None
    index = bisect_left(samples, answered, key=_sent)
    if index == 0 or index == len(samples):
        return None
    before, after = samples[index - 1], samples[index]
    share = (answered - _sent(before)) / (_sent(after) - _sent(before))
    return newest[_AT] - before[_AT] - share * (after[_AT] - before[_AT])


def _sent(sample: _Sample) -> float:
    return sample[_ANSWERED] + sample[_EXECUTING]


def _rate(samples: Sequence[_Sample], span_s: float) -> tuple[float, float]:
    """Return the requests per second answered in the last `span_s` seconds, and the seconds that samples cover of them."""
    window = _window(samples, span_s)
    covered = window[-1][_AT] - window[0][_AT]
    return ((window[-1][_ANSWERED] - window[0][_ANSWERED]) / covered if covered > 0 else 0.0), covered


def _recent_s(seconds: float) -> float:
    """Return the seconds for which pods must have been full, if requests take `seconds` in them."""
    return min(max(seconds / 4, _SHORT_S), _WINDOW_S)


def _most_ready(samples: Sequence[_Sample], span_s: float) -> int:
    return max(int(s[_READY]) for s in _window(samples, span_s))


def _full_rate(
    samples: Sequence[_Sample], seconds: float, fastest_s: float, *, waits: bool
) -> tuple[float, float] | None:
    """Return (requests per second, requests in execution) of a full pod; None if the pods aren't full."""
    ready = samples[-1][_READY]
    if seconds < _GROWN * fastest_s:
        # Requests don't hinder each other, so each of those in a pod takes this time.
        held = [s[_EXECUTING] for s in _window(samples, _recent_s(seconds))]
        mean = sum(held) / len(held)
        if waits and seconds > 0 and mean > 0 and max(held) - min(held) <= max(_LEVEL * mean, 2.0):
            return mean / (ready * seconds), mean / ready
        return None
    # The request that was answered last has waited in its pod or shared it, so the pod was full all that time.
    window = _window(samples, max(seconds, _SHORT_S))
    rate, covered_s = _rate(samples, max(seconds, _SHORT_S))
    answers, grown = rate * covered_s, window[-1][_EXECUTING] - window[0][_EXECUTING]
    if answers < _MIN_ANSWERS or covered_s < seconds or any(s[_READY] != ready for s in window):
        return None
    is_growing = grown > max(3.0 * math.sqrt(answers), _LEVEL * (answers + grown))
    if waits or is_growing or all(s[_HOT] for s in window):
        return rate / ready, max(rate * fastest_s / ready, 1.0)
    return None


def _with_peak(
    at: float, peaks: _Peaks, shared: SharedLimit | None, ready: int, rate: float
) -> tuple[_Peaks, SharedLimit | None]:
    """Return the peaks and the shared limit after `ready` full pods have answered `rate` requests per second."""
    kept = {count: (total, seen) for count, total, seen in peaks if at - seen <= _PEAK_S}
    known = kept.get(ready)
    kept[ready] = rate if known is None else known[0] + 0.2 * (rate - known[0]), at
    peaks = tuple((count, *kept[count]) for count in sorted(kept))
    if shared is not None:
        return (((ready, rate, at),), None) if rate > _LIFTED * shared.rps else (peaks, shared)
    now = kept[ready][0]
    for fewer, before, _ in peaks:
        if fewer >= ready:
            break
        if before > 0 and now - before < _MARGINAL * before * (ready - fewer) / fewer:
            each = max(total / count for count, total, _ in peaks)
            total = max(now, before)
            return peaks, SharedLimit(min(math.ceil(total / each - 0.1) + 1, ready), total, ready, at)
    return peaks, None
