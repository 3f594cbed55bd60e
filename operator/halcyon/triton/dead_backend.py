"""Detection of pods whose Triton backend may be dead, and the list of pods that `backend_probe` has proved dead. Pure.

If the Python stub process of a model dies, Triton does not restart it, and readiness stays 200 (measured on 2.51). A
CUDA error can make every later request of a process fail, and an execution can hang. A healthy model that rejects its
clients' input has the same counters. Counters alone therefore never prove that a backend is dead. They only determine
when a pod is examined:

- failing: some requests have failed since the last sample, and none succeeded.
- partly: some failed and some succeeded, so one instance of several may be dead.
- silent: none failed or succeeded, no answer has come for a while, and some answers are due.
- idle: none failed, some succeeded, and all are answered, or Triton's queue is empty and requests never pause. The probe
  is then tested, once per revision.
- In all other cases, or if counters are unknown, there is no suspicion.

Triton counts a request as successful when `execute` returns. Decoupled models, engines and async Python models respond
later, or never. While a balancer has requests in a pod, its own count of responses is therefore used to determine
whether the pod answers.

If every request of a pod fails for a while without a proof, this is reported, but the pod still receives requests. A
pod proved dead gets no requests until its container has restarted. A restart is detected if the pod was not ready, or
if its counters were reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from halcyon.triton.pod_revision import revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halcyon.triton.client import Endpoint, Metrics
    from halcyon.triton.pod_sampler import ScrapedPod

Suspicion = Literal["failing", "partly", "silent", "idle"]

QUIET_S = 2.0
"""Minimum time without an answer, in seconds, after which a pod that has requests is examined. Pods are sampled once a
second, and a dead pod must be out of service within 3 s after its first failed request."""
BUSY_S = 2.0
"""Time, in seconds, for which a pod must have had requests without a pause before the probe is tested while they are in
progress."""
MIN_HANG_S = 30.0
"""Minimum time without any answer, in seconds, after which a pod may count as hanging."""
HANG_FACTOR = 10
"""Minimum ratio of the time without any answer to the longest execution of the revision at which a pod counts as
hanging."""
REPORTED_AFTER_S = 15.0
"""Time, in seconds, for which all requests to a pod must fail before this is reported. The time is measured from the
first to the last failure, because the failed requests of an idle pod can be the agents' own probes."""
PROBED_SHARE = 0.25
"""Maximum ratio of successes to failures at which all clients' requests count as failing. The successes may be the
agents' own probes."""
EVERY_REQUEST_FAILS = "every request fails in the backend, but it is not certain that the backend is dead"


class PodRequests(NamedTuple):
    """Requests sent by one balancer to one pod."""

    inflight: int
    answered: int
    """Counter of responses whose headers have arrived at the balancer."""


_NO_LOAD = PodRequests(0, 0)


@dataclass
class ProbedRevision:
    """Results of earlier probes on pods of one revision."""

    succeeded: bool = False
    """Whether a probe has succeeded on a pod of this revision. Before that, a failed probe proves nothing, unless it
    fails with Triton's message for a dead stub."""
    tried: bool = False
    busy_since: float | None = None
    """Time of the first sample in which clients' requests prevented a test of the probe; None if there is none."""
    longest_s: float = 0.0
    """Time of the longest execution observed, in seconds."""

    @property
    def hang_s(self) -> float:
        """Return the time without any answer, in seconds, after which a pod counts as hanging."""
        return max(MIN_HANG_S, HANG_FACTOR * self.longest_s)


@dataclass
class _WatchedPod:
    metrics: Metrics
    answered_at: float
    """Time of the last sample in which the pod had answered a request or had no requests."""
    failing_since: float | None = None
    """Time of the first failure after the last success; None if there is none."""
    failed_at: float = 0.0
    """Time of the last failure."""
    load: PodRequests = _NO_LOAD

    def has_answered(self, load: PodRequests, finished: int) -> bool:
        """Return whether the pod has answered since the last sample. `finished` is the rise of Triton's counters."""
        # Requests that were in the pod at both samples were there in between. A counter that fell is that of another HAProxy.
        is_held = bool(load.inflight and self.load.inflight)
        return load.answered != self.load.answered if is_held else finished > 0

    def count_failures(self, succeeded: int, failed: int, now: float) -> None:
        """Update the times of the first and the last failure since the last success."""
        if succeeded > failed * PROBED_SHARE:
            self.failing_since = None
        elif failed:
            self.failing_since = now if self.failing_since is None else self.failing_since
            self.failed_at = now


@dataclass
class DeadBackends:
    """Pods of one model that are proved to have a dead backend, with the last sample of each of the model's pods."""

    dead: dict[str, str] = field(default_factory=dict)
    """Reason why the backend is dead, for each dead pod that has not restarted yet."""
    partial: set[str] = field(default_factory=set)
    """Pods with a dead backend that still answer some requests, because only one of their model instances is dead."""
    revisions: dict[str, ProbedRevision] = field(default_factory=dict)
    """Results of earlier probes, by revision of the pods (see `revision_of`)."""
    _restarting: dict[str, str] = field(default_factory=dict)
    _pods: dict[str, _WatchedPod] = field(default_factory=dict)

    @property
    def out(self) -> frozenset[str]:
        """Names of the pods to take out of service.

        These are all pods with a dead backend that answer no requests. If there are none, it is one pod that answers
        only some requests, because some of its model instances are dead. All agents choose the same pod: the first by
        name.
        """
        return frozenset(self.dead.keys() - self.partial) or frozenset(sorted(self.dead)[:1])

    @property
    def failures(self) -> dict[str, str]:
        """Reason why the backend fails, for each pod, by name.

        A pod is included if its backend is dead or fails every request.
        """
        failing = {
            name: EVERY_REQUEST_FAILS
            for name, pod in self._pods.items()
            if pod.failing_since is not None and pod.failed_at - pod.failing_since >= REPORTED_AFTER_S
        }
        return failing | self._restarting | self.dead

    def quiet_s(self, pod: str, now: float) -> float:
        """Return the seconds since a pod last answered a request or had no requests.

        The result is 0 for a pod without samples.
        """
        return now - self._pods[pod].answered_at if pod in self._pods else 0.0

    def proved(self, pod: str, reason: str, *, partial: bool) -> None:
        """Record the proof that the backend of a pod is dead."""
        self.dead[pod] = reason
        (self.partial.add if partial else self.partial.discard)(pod)

    def update(
        self,
        endpoints: Iterable[Endpoint],
        samples: Mapping[str, ScrapedPod],
        now: float,
        loads: Mapping[str, PodRequests] | None = None,
    ) -> dict[str, Suspicion]:
        """Compare a new sample of the pods with the last one, and return the pods to examine.

        Args:
            endpoints: all pods.
            samples: sample by pod name.
            now: monotonic time, in seconds.
            loads: requests of the caller's balancer in each pod, by address; None if there is no balancer.
        """
        listed = {endpoint.pod: endpoint for endpoint in endpoints}
        serving = {name for name, e in listed.items() if e.serving and not e.terminating}
        for name in [name for name in self.dead if name not in serving]:
            self._restarted(name)
        self._restarting = {p: why for p, why in self._restarting.items() if p in listed and p not in serving}
        self._pods = {name: pod for name, pod in self._pods.items() if name in serving}
        revisions = {revision_of(name) for name in listed}
        self.revisions = {name: revision for name, revision in self.revisions.items() if name in revisions}
        suspects: dict[str, Suspicion] = {}
        for name in sorted(serving):
            sample = samples.get(name)
            if sample is None or sample.metrics is None:
                continue  # Keep the counters of its previous response for the next comparison.
            suspicion = self._compare(name, sample.metrics, now, (loads or {}).get(listed[name].address, _NO_LOAD))
            if suspicion is not None and (name not in self.dead or name in self.partial):
                suspects[name] = suspicion
        return suspects

    def _restarted(self, pod: str) -> None:
        self._restarting[pod] = self.dead.pop(pod)
        self.partial.discard(pod)
        self._pods.pop(pod, None)

    def _compare(self, name: str, after: Metrics, now: float, load: PodRequests) -> Suspicion | None:
        pod = self._pods.get(name)
        succeeded = _rise(pod.metrics.succeeded, after.succeeded) if pod else None
        failed = _rise(pod.metrics.backend_failed, after.backend_failed) if pod else None
        if pod is None or succeeded is None or failed is None:
            if pod is not None and name in self.dead and _fell(pod.metrics, after):
                self._restarted(name)
                self._restarting.pop(name, None)
            self._pods[name] = _WatchedPod(after, now, load=load)
            return None
        due = bool(load.inflight or after.pending)
        answered = pod.has_answered(load, succeeded + failed)
        quiet_s = now - pod.answered_at
        revision = self.revisions.setdefault(revision_of(name), ProbedRevision())
        if succeeded:
            compute_s = (_rise(pod.metrics.compute_us, after.compute_us) or 0) / 1e6 / succeeded
            revision.longest_s = max(revision.longest_s, compute_s)
        if answered and quiet_s > QUIET_S:
            revision.longest_s = max(revision.longest_s, quiet_s)
        if answered or not due:
            pod.answered_at = now
        pod.count_failures(succeeded, failed, now)
        pod.metrics, pod.load = after, load
        if failed:
            return "partly" if succeeded else "failing"
        # A process that has answered nothing yet may still compile its first execution.
        if due and after.succeeded and quiet_s >= max(QUIET_S, 2 * revision.longest_s):
            return "silent"
        return "idle" if succeeded and not revision.tried and self._may_test(revision, after, now, due=due) else None

    @staticmethod
    def _may_test(revision: ProbedRevision, metrics: Metrics, now: float, *, due: bool) -> bool:
        """Return whether the probe may be tested now on a pod that answers. `due` is true if the pod has requests.

        While clients' requests are in progress, the probe could take the place of one in a short queue. However, the
        probe must also be tested on a pod that is never without requests, because otherwise a failed probe would never
        prove anything.
        """
        if not due:
            return True
        revision.busy_since = now if revision.busy_since is None else revision.busy_since
        return not metrics.pending and now - revision.busy_since >= BUSY_S


def _rise(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _fell(before: Metrics, after: Metrics) -> bool:
    pairs = ((before.succeeded, after.succeeded), (before.backend_failed, after.backend_failed))
    return any(old is not None and new is not None and new < old for old, new in pairs)
