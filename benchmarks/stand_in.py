"""Simulation of a model as its balancer's agent would observe it, used if pods are simulated by KWOK. Pure.

It replaces HAProxy and Triton by a queue in front of pods with the service law S(b) = t0 + a x b, treated as a fluid.
The content and transport of the reports are real (`agents`). The simulation is deterministic, with evenly spaced
requests, so that the benchmark measures the reaction and not random fluctuations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from halcyon.api.documents.observation_report import AgentReport, BalancerSample, BatchStats, PodSample

BATCHES_INTERVAL_S = 5.0
"""Interval in seconds at which agents read a pod's batch statistics."""
_WARM_UP = 3
"""Number of batches with one row, and with the largest size, that a pod has run in its warm-up."""
_IN_SERVER = 3
"""Number of batches' worth of requests that a balancer sends to one server at a time. Other requests wait in the
balancer."""


@dataclass(frozen=True)
class Law:
    """Service law: a batch of b rows takes t0_s + a_s x b on one instance."""

    t0_s: float = 0.080
    a_s: float = 0.006
    max_batch: int = 8

    def seconds(self, batch: int) -> float:
        """Return the duration of a batch of this size, in seconds."""
        return self.t0_s + self.a_s * batch

    @property
    def peak_rps(self) -> float:
        """Return the requests per second of a replica with full batches."""
        return self.max_batch / self.seconds(self.max_batch)

    def batch_at(self, rate_rps: float) -> float:
        """Return the mean rows per batch, if requests that arrive during one batch form the next: b = rate x S(b)."""
        if rate_rps >= self.peak_rps:
            return float(self.max_batch)
        return min(max(rate_rps * self.t0_s / (1 - rate_rps * self.a_s), 1.0), float(self.max_batch))


@dataclass
class _Pod:
    served: float = 0.0
    batches: dict[int, float] = field(default_factory=dict)


@dataclass
class StandIn:
    """The state of one simulated model. Times are in seconds since the epoch, and must not decrease."""

    namespace: str
    name: str
    law: Law = Law()
    rate_rps: float = 0.0
    _at: float | None = None
    _arrived: float = 0.0
    _waiting: float = 0.0
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _batches_at: float = -math.inf
    _batch_stats: dict[str, BatchStats] = field(default_factory=dict)

    def set_rate(self, now: float, rate_rps: float, pods: Sequence[str]) -> None:
        """Set the rate from `now` on. Requests until then arrive at the previous rate."""
        self.advance(now, pods)
        self.rate_rps = rate_rps

    @property
    def is_idle(self) -> bool:
        """Whether no requests arrive, and none wait."""
        return self.rate_rps == 0.0 and self._waiting == 0.0

    def advance(self, now: float, pods: Sequence[str]) -> None:
        """Advance the simulation to `now` with these ready pods."""
        law = self.law
        warm = {1: float(_WARM_UP), law.max_batch: float(_WARM_UP)}
        self._pods = {pod: self._pods.get(pod) or _Pod(batches=dict(warm)) for pod in pods}
        seconds = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        arrived = self.rate_rps * seconds
        self._arrived += arrived
        self._waiting += arrived
        if not pods or not seconds:
            return
        served_by_pod = min(self._waiting / len(pods), law.peak_rps * seconds)
        self._waiting = max(self._waiting - served_by_pod * len(pods), 0.0)
        mean = law.batch_at(served_by_pod / seconds)
        low = math.floor(mean)
        for pod in self._pods.values():
            pod.served += served_by_pod
            runs = served_by_pod / mean
            pod.batches[low] = pod.batches.get(low, 0.0) + runs * (1 - (mean - low))
            if mean > low:
                pod.batches[low + 1] = pod.batches.get(low + 1, 0.0) + runs * (mean - low)

    def report(self, now: float, pods: Sequence[str], agent: str) -> AgentReport:
        """Return the report that the agent `agent` sends at `now`."""
        self.advance(now, pods)
        if now - self._batches_at >= BATCHES_INTERVAL_S or self._batch_stats.keys() != self._pods.keys():
            self._batches_at = now
            self._batch_stats = {name: BatchStats(now, self._sizes(pod)) for name, pod in self._pods.items()}
        inside = min(self._waiting, float(_IN_SERVER * self.law.max_batch * len(pods)))
        batch = self.law.batch_at(self.rate_rps / len(pods)) if pods else 0.0
        working = round(min(batch, self.rate_rps) * len(pods)) if pods else 0
        balancer = BalancerSample(
            queued=int(self._waiting - inside),
            inflight=working + int(inside),
            requests=int(self._arrived),
            rejected=0,
            errors=0,
        )
        samples = tuple(self._sample(name, pod, now, int(inside / len(pods))) for name, pod in self._pods.items())
        return AgentReport(self.namespace, self.name, agent, now, balancer, samples)

    def _sizes(self, pod: _Pod) -> tuple[tuple[int, int, int], ...]:
        return tuple(
            (size, int(count), round(int(count) * self.law.seconds(size) * 1e6))
            for size, count in sorted(pod.batches.items())
            if count >= 1
        )

    def _sample(self, name: str, pod: _Pod, now: float, pending: int) -> PodSample:
        busy_us = sum(count * self.law.seconds(size) for size, count in pod.batches.items()) * 1e6
        return PodSample(
            name,
            "ready",
            now,
            pending=pending,
            succeeded=int(pod.served),
            failed=0,
            backend_failed=0,
            rows=int(pod.served),
            executions=int(sum(pod.batches.values())),
            queue_us=0,
            compute_us=int(busy_us),
            versions=("1",),
            batches=self._batch_stats.get(name),
        )
