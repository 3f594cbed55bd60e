"""Capacity of pods, learnt from the requests that they answer instead of from Triton's batch statistics.

Triton's compute times are those of `execute`. Models that answer after `execute` has returned (decoupled models,
engines with their own batching, asynchronous Python) have batch times of microseconds for requests of seconds. Other
models have no batch times at all. The service line, a line fitted to the batch times, is therefore used only while the
answers don't contradict it.

Three curves are known from the balancers' counters: requests sent to pods, requests answered, and their difference,
which is the number of requests in execution. By Little's law, a ready pod answers (requests in execution per pod) /
(time in the pod) requests per second. The time in the pod is the horizontal distance between the curves of requests
sent and answered. It is correct as soon as there is an answer. A rate of answers is correct only after several times
this long, because answers come in bursts.

Pods can share a limit even if the service line is not contradicted. If they share a lock within `execute`, for example,
batches take longer the more pods there are. The batch times are then correct, but don't show how many requests
additional pods would answer. Out of scope: how the plan uses the result (`plan`, `parts`).
"""

# | question                          | the answer is yes if                                                            |
# | --------------------------------- | ------------------------------------------------------------------------------- |
# | Is the service line contradicted? | requests take three times as long as full batches would, or full pods answer    |
# |                                   | less than half of the requests that the line predicts                           |
# | Are the pods full?                | requests wait all the time, or time in the pod grows together with the requests |
# |                                   | in it, or GPUs are full and requests take longer than alone, or engines report  |
# |                                   | that they are full                                                              |
# | Do the pods share a limit?        | full pods answer hardly more than fewer full pods did (`shared_limit`)          |

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.capacity import batch_time_check
from halcyon.scaling.planner.capacity.answer_samples import (
    ANSWERED,
    AT,
    WAITING,
    RequestCounts,
    Sample,
    queues,
    time_in_pod,
    with_sample,
)
from halcyon.scaling.planner.capacity.answer_window import AnswerWindow
from halcyon.scaling.planner.capacity.full_pod import GROWN, full_rate
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity.shared_limit import Peaks, SharedLimit, with_peak
from halcyon.scaling.planner.reading import Reading

_SILENT_S = 5.0
"""Seconds without any answer, in addition to the longest time in a pod that fits the batch times, after which the
unanswered requests contradict the batch times."""
_AGREE_S = 60.0
"""Seconds for which the times in pods must agree with Triton's batch times before the batch times are used again."""
_UNREPORTED_S = 10.0
"""Seconds of answers without batch times after which a model with batching is considered to report none. This is twice
the interval at which agents read batch times. If answers were used earlier, requests waiting for the next batch would
make a pod look full."""
_RELAX_S = 600.0
"""Time constant, in seconds, with which the stored shortest time of a request in a pod grows unless a request takes
less. It grows because requests may have become longer."""
_SHARED_S = 1800.0
"""Seconds after which the planner tests again with more replicas whether pods still share a limit."""
_PROVISIONAL = 10.0
"""Capacity of a pod assumed until one has been full, as a multiple of the highest rate of answers per pod so far."""
MEASURED = "Bench"
"""Value of `found_by` if the capacity was measured by `halcyon bench`."""
_ROUNDS = 2.0
"""Time for which requests must have waited in balancers before the planner tests whether pods share a limit. It is a
multiple of a request's time in a pod, and is added to the window in which answers are counted. Meanwhile, new pods fill
up. Requests need not have waited if the capacity is already taken from answers."""


def _counts(reading: Reading) -> RequestCounts:
    """Return the requests in a reading. Unknown numbers count as 0."""
    ready = sum(pod.phase in {"ready", "draining"} for pod in reading.pods)
    inside, waiting = reading.inflight or 0.0, reading.waiting or 0.0
    answered, executing = (reading.arrived or 0.0) - (reading.rejected or 0.0) - inside, max(inside - waiting, 0.0)
    gpu, engine_used = reading.gpu, reading.engine_used
    return RequestCounts(ready, answered, executing, waiting, inside, gpu, engine_used, bool(reading.queued))


@immutable(frozen=True, slots=True)
class AnswerEvidence:
    """Capacity of a model's pods learnt from the requests that they answer, with the data that it is learnt from."""

    rps: float | None = None
    """Requests per second that a full, ready pod answers; None if no pod has been full."""
    at_once: float = 1.0
    """Number of requests that a full pod executes at the same time."""
    seconds: float = 0.0
    """Time that the last answered requests spent in their pod, in seconds; 0 if unknown."""
    fastest_s: float | None = None
    """Shortest time that a request took in a pod, in seconds; None if unknown. It grows slowly until a request is
    faster."""
    least_rps: float = 0.0
    """Highest rate of answers per ready pod so far, in requests per second. It is a lower bound of the capacity,
    because the pods need not have been full."""
    contradicts_at: float | None = None
    """Time since which the pods' answers have contradicted Triton's batch times; None while the two agree."""
    agrees_at: float | None = None
    """Time since which the answers have agreed with the batch times again after a contradiction; None if they don't
    agree or never disagreed."""
    is_in_force: bool = False
    """Whether the pods' answers contradict Triton's batch times, and `rps` is therefore used as the capacity."""
    line_rps: float | None = None
    """Requests per second of a replica according to Triton's batch times, at the last comparison; None if there are no
    batch times."""
    peaks: Peaks = ()
    shared: SharedLimit | None = None
    anchor: tuple[float, float, float, float] | None = None
    """Reference point from when the answers last agreed with the batch times, as (time, requests answered until then,
    requests in execution now, request-seconds in execution since then)."""
    samples: tuple[Sample, ...] = ()
    """Recent samples, oldest first; empty while answers agree with the batch times and hardly any requests wait."""
    found_by: str = ""
    """Method by which `rps` was determined; empty if unknown. `TimeInPods`: Little's law. `Answers`: counted answers.
    `EngineMetrics`: counted answers while engines reported that they were full. `MEASURED`: the result of `halcyon
    bench`."""
    alone: tuple[int, float, float] | None = None
    """Capacity of each pod, by its batch times, when the fewest pods were ready in the last minutes, as (ready pods,
    requests per second of each, time); None if unknown. It is compared with the answers of more pods: if pods share a
    lock, the present batch times don't show it, because batches take longer the more pods there are."""

    @property
    def is_unseen(self) -> bool:
        """Return whether the capacity was measured by `halcyon bench` and no pod has answered a request yet."""
        return self.found_by == MEASURED and self.fastest_s is None

    def with_measured(self, measured: tuple[float, float] | None) -> AnswerEvidence:
        """Return the evidence with `measured`, the measurement of `halcyon bench`; None removes an earlier measurement.

        `measured` is (requests in execution in a full pod, seconds that each takes). It is used until requests take a
        different time in the model's pods, or until pods have been full.
        """
        is_measured = self.found_by == MEASURED
        if measured is None:
            if not is_measured:
                return self
            return replace(self, rps=None, at_once=1.0, seconds=0.0, is_in_force=False, found_by="")
        at_once, seconds = measured
        is_same = is_measured and self.at_once == at_once and (not self.is_unseen or self.seconds == seconds)
        if is_same or (self.rps is not None and not is_measured):
            return self
        updated = replace(self, rps=at_once / seconds, at_once=at_once, seconds=seconds, fastest_s=None)
        return replace(updated, is_in_force=True, found_by=MEASURED)

    def with_reading(
        self, at: float, reading: Reading, replica: Replica | None, *, is_measured: bool = False, max_batch: int = 1
    ) -> AnswerEvidence:
        """Return the evidence updated with a plausible reading.

        `replica` is the capacity computed from batch times; None if there are none. `is_measured` is true if `halcyon
        bench` measured some of them. `max_batch` is the number of rows in the largest batch.
        """
        counts, anchor = _counts(reading), self.anchor
        if anchor is None or at < anchor[0] or counts.has_restarted(anchor[1]) or not counts.ready:
            return self._anchored(at, counts, self.alone)
        if at - anchor[0] <= 0 or (self.samples and at <= self.samples[-1][AT]):
            return self
        last_at = self.samples[-1][AT] if self.samples else anchor[0]
        anchor = (anchor[0], anchor[1], counts.executing, anchor[3] + anchor[2] * (at - last_at))
        limit_s = batch_time_check.limit_s(replica, counts.executing / counts.ready)
        if replica is not None and self._fits_line(counts, anchor, replica, limit_s):
            # A measurement by `halcyon bench` shows nothing about a limit that pods share.
            is_evidence = not is_measured and counts.answered > anchor[1]
            return self._anchored(at, counts, self._alone(at, counts.ready, replica) if is_evidence else self.alone)
        samples = with_sample(self.samples, at, counts)
        seconds = time_in_pod(samples)
        if seconds is None:
            return self._unanswered(at, samples, anchor, limit_s)
        proven_s = _UNREPORTED_S if replica is None and max_batch > 1 else 1.0
        return self._answered(at, AnswerWindow.of(samples, seconds, replica, limit_s), anchor, reading, proven_s)

    def _anchored(self, at: float, counts: RequestCounts, alone: tuple[int, float, float] | None) -> AnswerEvidence:
        """Return the evidence without samples, from a reading from which requests are counted."""
        anchor = (at, counts.answered, counts.executing, 0.0)
        return self._with(anchor=anchor, samples=(), contradicts_at=None, alone=alone)

    def _fits_line(
        self, counts: RequestCounts, anchor: tuple[float, float, float, float], replica: Replica, limit_s: float
    ) -> bool:
        """Return whether hardly any requests wait, and requests take no longer than the batch times promise."""
        return (
            counts.waiting <= counts.ready * replica.max_batch * replica.instances
            and not self.is_in_force
            and self.shared is None
            and anchor[3] <= limit_s * (max(counts.answered - anchor[1], 0.0) + 1)
        )

    def replica(self) -> Replica | None:
        """Return a replica's capacity according to its answers; None if batch times are used or no pod was full."""
        if not self.is_in_force or self.rps is None:
            return None
        slots = max(round(self.at_once), 1)
        return Replica(ServiceLine(slots / self.rps, 0.0), 1, slots, residual=0.0)

    def provisional(self) -> Replica | None:
        """Return an assumed capacity for models without batch times until a pod has been full.

        Return None if no pod has answered a request. The assumed capacity is far above the rates of answers so far, so
        it never adds replicas. They are added once a pod is full; until then, `parts.answers_limit` keeps the present
        replicas.
        """
        if not self.is_in_force or self.rps is not None or self.least_rps <= 0:
            return None
        return Replica(ServiceLine(1 / (_PROVISIONAL * self.least_rps), 0.0), 1, 1, residual=0.0)

    def describe(self) -> str:
        """Return the reason why Triton's batch times are not used, with numbers and units."""
        if self.found_by == MEASURED:
            count, time = f"{self.at_once:.0f} requests at once", f"take {self.at_once / (self.rps or math.inf):.3g} s"
            measured = "as halcyon bench measured it"
            return f"{count} {time}, {measured}" if self.is_unseen else f"{count}, {measured}, {time} in the pods"
        line = "Triton reports no batch times"
        if self.line_rps is not None:
            line = f"Triton's batch times promise {plain(self.line_rps)} req/s per replica"
        facts = [f"requests take {self.seconds:.3g} s in a pod"] if self.seconds > 0 else []
        if self.rps is not None:
            facts.append(f"a full pod answers {plain(self.rps, 3)} req/s with {self.at_once:.0f} at once")
        text = f"{line}, but {', and '.join(facts)}" if facts else line
        return text if self.rps is not None else f"{text}; no pod has been full yet, so replicas are kept"

    def _alone(self, at: float, ready: int, replica: Replica) -> tuple[int, float, float] | None:
        """Return the field `alone`, updated after answers that agree with the batch times.

        It stays the same if a pod has several instances, because the time of one batch does not show how many requests
        the instances answer together.
        """
        alone = self.alone
        is_next = alone is None or ready <= alone[0] or at - alone[2] > _RELAX_S
        return (ready, replica.peak_rps, at) if is_next and replica.instances == 1 else alone

    def _answered(
        self,
        at: float,
        window: AnswerWindow,
        anchor: tuple[float, float, float, float],
        reading: Reading,
        proven_s: float,
    ) -> AnswerEvidence:
        """Return the evidence updated with the newest sample. A contradiction must last for `proven_s` seconds."""
        peaks, shared = self._shared(at, window)
        contradicts_at, agrees_at, in_force = self._contradiction(at, window, reading, proven_s)
        passed_s = at - self.samples[-1][AT] if self.samples else 0.0
        fastest_s = min(window.seconds, (self.fastest_s or math.inf) * (1 + passed_s / _RELAX_S))
        rps, at_once, method = self._capacity(
            window, fastest_s, passed_s, in_force=in_force, is_shared=shared is not None
        )
        if shared is not None and peaks and rps is not None:
            rps = max(rate / count for count, rate, _ in peaks)
        least_rps = self.least_rps
        if window.is_complete:
            least_rps = max(least_rps, window.rate_rps / window.most_ready)
        return AnswerEvidence(
            rps,
            at_once,
            window.seconds,
            fastest_s,
            least_rps,
            contradicts_at,
            agrees_at,
            in_force,
            None if window.replica is None else window.replica.peak_rps,
            peaks,
            shared,
            anchor,
            window.samples,
            method,
            None if shared is None and self.shared is not None and peaks else self.alone,
        )

    def _unanswered(
        self,
        at: float,
        samples: tuple[Sample, ...],
        anchor: tuple[float, float, float, float],
        limit_s: float,
    ) -> AnswerEvidence:
        """Return the evidence updated with the newest sample while the time in a pod is unknown."""
        contradicts_at = self.contradicts_at
        # Requests that have been in pods for a long time contradict the line even before the first one is answered.
        if samples[-1][ANSWERED] <= anchor[1] and at - anchor[0] > limit_s + _SILENT_S and anchor[3] > limit_s:
            contradicts_at = at if contradicts_at is None else contradicts_at
        return self._with(anchor=anchor, samples=samples, contradicts_at=contradicts_at, alone=self.alone)

    def _contradiction(
        self, at: float, window: AnswerWindow, reading: Reading, proven_s: float
    ) -> tuple[float | None, float | None, bool]:
        """Return the fields `contradicts_at`, `agrees_at` and `is_in_force` after the newest sample."""
        # contradicts   in force   agrees, and is_first or not full   result
        # yes           -          -                                  in force after `proven_s`, or as before
        # no            no         -                                  not in force
        # no            yes        no                                 in force
        # no            yes        yes, is_first                      not in force
        # no            yes        yes, not is_first                  in force until it has lasted for `_AGREE_S`
        if window.contradicts(reading.waiting or 0.0, reading.queued):
            since = at if self.contradicts_at is None else self.contradicts_at
            return since, None, self.is_in_force or at - since >= max(proven_s, window.seconds / 10)
        # The answers of full pods contradict the line, too, as long as requests take clearly longer than batches.
        # Batch times that were missing until now have never been contradicted, so they are used at once.
        is_first = self.line_rps is None
        if not (self.is_in_force and window.agrees() and (is_first or not window.is_full_now)):
            return None, None, self.is_in_force
        agrees_at = at if self.agrees_at is None else self.agrees_at
        return None, agrees_at, not is_first and at - agrees_at < _AGREE_S

    def _capacity(
        self, window: AnswerWindow, fastest_s: float, passed_s: float, *, in_force: bool, is_shared: bool
    ) -> tuple[float | None, float, str]:
        """Return the fields `rps`, `at_once` and `found_by` after the newest sample.

        Args:
            window: state of the pods.
            fastest_s: shortest time that a request took in a pod, in seconds.
            passed_s: time since the sample before, in seconds.
            in_force: whether the answers contradict the batch times.
            is_shared: whether pods share a limit, so that their rate isn't that of a full pod.
        """
        rps, at_once, seconds = self.rps, self.at_once, window.seconds
        is_measured = self.found_by == MEASURED
        full = None
        if in_force and not is_shared:
            full = full_rate(window.samples, seconds, fastest_s, is_full_now=window.is_full_now)
        if full is not None:
            rate, held, method = full
            if rps is None:
                return rate, at_once + (held - at_once), method
            # Pods that are only just full answer less than they can.
            share = 1.0 if is_measured else min(1.0, (2 if rate > rps else 1) * passed_s / window.length_s)
            return rps + share * (rate - rps), at_once + share * (held - at_once), method
        if is_measured and seconds < GROWN * fastest_s:
            rps = at_once / seconds
        elif in_force and rps is not None and window.is_complete:
            # Pods that aren't full answer at least this much.
            total = window.rate_rps
            rps = max(rps, (total - math.sqrt(total / window.covered_s)) / window.most_ready)
        return rps, at_once, self.found_by

    def _shared(self, at: float, window: AnswerWindow) -> tuple[Peaks, SharedLimit | None]:
        """Return the answer rates of full pods and the limit that pods share, both updated with the newest sample."""
        samples, ready, replica = window.samples, window.ready, window.replica
        if self.shared is not None and at - self.shared.at > _SHARED_S:
            return (), None
        if self.shared is None and samples[-1][WAITING] <= window.fits:
            return (), None
        queued_s = window.length_s + _ROUNDS * window.seconds
        if not window.was_full or not (self.is_in_force or queues(samples, queued_s, ready)):
            return self.peaks, self.shared
        # Answers come a batch at a time, so up to one batch of each pod is missing from the rate.
        slack = ready * (1 if replica is None else replica.max_batch * replica.instances) / window.covered_s
        alone = None if self.alone is None else self.alone[:2]
        return with_peak(at, self.peaks, self.shared, ready, window.rate_rps, slack=slack, alone=alone)

    def _with(
        self,
        *,
        anchor: tuple[float, float, float, float],
        samples: tuple[Sample, ...],
        contradicts_at: float | None,
        alone: tuple[int, float, float] | None,
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
            self.found_by,
            alone,
        )

    def shifted(self, by_s: float) -> AnswerEvidence:
        """Return the evidence with all times shifted by `by_s` seconds, for use after the clock was set."""
        shared = self.shared
        return replace(
            self,
            contradicts_at=None if self.contradicts_at is None else self.contradicts_at + by_s,
            agrees_at=None if self.agrees_at is None else self.agrees_at + by_s,
            shared=None if shared is None else replace(shared, at=shared.at + by_s),
            peaks=tuple((count, rate, time + by_s) for count, rate, time in self.peaks),
            alone=None if self.alone is None else (*self.alone[:2], self.alone[2] + by_s),
            anchor=None,
            samples=(),
        )
