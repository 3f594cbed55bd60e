"""Concurrency limits of HAProxy's servers, so that no pod receives more requests than it can process at once.

The maximum, called the bound in the code, applies to all balancers and both protocols together, and is divided among
the balancers (`shares`). A measured maximum applies to one revision, which is identified by the name of the pods'
ReplicaSet.
"""

# field that is set in the plan       | maximum concurrency of a pod, over all balancers and both protocols
# `max_concurrency`                   | `max_concurrency`
# `finds_concurrency`                 | measured (`concurrency_finder`) by one agent, the one with the lowest name
# `objective_ms`                      | at most what the latency objective allows (`overload_limits`)
# none, or the model has a batcher    | none: each server has the plan's `max_connections`, for each protocol

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from halcyon.balancer.runtime import shares
from halcyon.balancer.runtime.concurrency_finder import ComputeTime, ConcurrencyFinder, Load, initial_bound
from halcyon.balancer.runtime.shares import MIN_DEMAND, BalancerLoad, Elsewhere
from halcyon.triton.client import ModelConcurrency
from halcyon.triton.pod_revision import revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.config.model import ServerKey
    from halcyon.balancer.runtime.haproxy_stats import BackendLoads
    from halcyon.balancer.runtime.server_assignment import AssignedServer
    from halcyon.triton.client import Endpoint

WAIT_S: Final = 5.0
"""Time after the start of the agent for which a balancer with an unknown load is assumed to be busy, in seconds."""
MAX_REVISIONS: Final = 8
"""Maximum number of revisions for which the measured maximum concurrency is stored."""
OBJECTIVE_HALF_LIFE_S: Final = 2.0
"""Half-life of the demand of an idle balancer, in seconds, for plans with a latency objective."""
_RECENT_S: Final = 1.2
"""Time before a sample of the pods in which requests may have been on their way, in seconds."""
_MAX_SAMPLE_AGE_S: Final = 10.0
"""Time for which the numbers of requests in progress are kept, in seconds. Older samples are not useful."""
_FORGET_AFTER: Final = 100
"""Number of executions after which the weight of earlier executions in the mean is halved."""


class TritonCounters(Protocol):
    """Metrics of one pod, as Triton reports them. Each metric is None if it is unknown."""

    @property
    def pending(self) -> int | None:
        """Number of requests in Triton's queue."""

    @property
    def succeeded(self) -> int | None:
        """Counter of successful requests."""

    @property
    def compute_us(self) -> int | None:
        """Total time that Triton spent computing requests (counter), in microseconds."""


def _most_unproved(plan: BalancerPlan) -> int:
    return plan.max_connections * plan.balancers


class Concurrency:
    """Limits on the number of concurrent requests at each server of one HAProxy."""

    def __init__(self, agent: str = "", measured: Mapping[str, int] | None = None) -> None:
        """Create the limits without any measurements.

        Args:
            agent: name of the agent's pod.
            measured: maximum concurrencies that an earlier agent has measured, by revision.
        """
        self.agent = agent
        self.others: tuple[BalancerLoad, ...] = ()
        """Newest known loads of the model's other balancers."""
        self.own = BalancerLoad(agent)
        """Load of this balancer, as of the last call of `limits`. The agent publishes it to the other balancers."""
        self.measured = dict(measured or {})
        """Measured maximum concurrency of a pod, by revision. The newest revision is the last."""
        self.facts: dict[str, ModelConcurrency] = {}
        """Properties of the model, read from Triton's configuration, by revision."""
        self.objective_bound = 0
        """Number of requests that a pod may have in progress according to the latency objective; 0 if unknown, or
        without an objective."""
        self.rejected_load = 0.0
        """Number of requests that would wait in this balancer if they had not been rejected. They count as demand."""
        self.lower: tuple[float, int, int] = (0.0, 0, 0)
        """Load of this balancer, as (users' requests per second, batch inference requests waiting or in progress, batch
        inference requests in progress at pods)."""
        self._finders: dict[str, ConcurrencyFinder] = {}
        self._revisions: dict[str, str] = {}
        self._pods: dict[str, str] = {}
        """Name of each pod, by its IP address."""
        self._answered: dict[tuple[str, str], int] = {}
        self._inflight: dict[str, deque[tuple[float, int]]] = {}
        self._pending: dict[str, int] | None = None
        """Number of requests in Triton's queues, by pod name; None if there is no new sample."""
        self._sampled_at = 0.0
        self._executions: dict[str, tuple[float, float]] = {}
        self._counters: dict[str, tuple[int, int, float]] = {}
        """Successful requests, compute time in microseconds, and time of each pod's last sample, by pod name."""
        self._compute: dict[str, ComputeTime] = {}
        self._started_at: float | None = None
        self._updated_at = 0.0

    def place(self, endpoints: Iterable[Endpoint]) -> None:
        """Set the pods that the model has now."""
        self._pods = {endpoint.address: endpoint.pod for endpoint in endpoints}
        self._revisions = {address: revision_of(pod) for address, pod in self._pods.items()}

    def unknown_revisions(self, endpoints: Iterable[Endpoint]) -> dict[str, Endpoint]:
        """Return one serving pod for each revision whose model configuration is unknown, by revision."""
        return {
            revision: endpoint
            for endpoint in endpoints
            if endpoint.serving and (revision := revision_of(endpoint.pod)) not in self.facts
        }

    def add_samples(self, samples: Mapping[str, TritonCounters | None], since: float, late_s: float) -> None:
        """Add new samples of the pods.

        Args:
            samples: sample of each pod, by pod name; None for a pod that does not respond.
            since: monotonic time at which the first of them was requested, in seconds.
            late_s: time from `since` until the last of them was read, in seconds.
        """
        self._sampled_at, self._pending = since, {}
        for pod, read in samples.items():
            revision = revision_of(pod)
            if read is not None and read.pending is not None:
                self._pending[pod] = read.pending
            if read is None or read.succeeded is None or read.compute_us is None:
                continue
            is_new = pod not in self._counters
            last, self._counters[pod] = (
                self._counters.get(pod, (0, 0, since)),
                (read.succeeded, read.compute_us, since),
            )
            done, took_us = read.succeeded - last[0], read.compute_us - last[1]
            if not is_new and took_us >= 0:
                self._compute.setdefault(revision, ComputeTime()).add(pod, took_us / 1e6, since - last[2], late_s)
            if done > 0 and took_us >= 0:
                count, total_s = self._executions.get(revision, (0.0, 0.0))
                keep = 0.5 if count > _FORGET_AFTER else 1.0
                self._executions[revision] = (keep * count + done, keep * total_s + took_us / 1e6)
        self._counters = {pod: counters for pod, counters in self._counters.items() if pod in samples}
        revisions = set(map(revision_of, samples))
        self._compute = {revision: time for revision, time in self._compute.items() if revision in revisions}

    def limits(
        self, plan: BalancerPlan, servers: Iterable[AssignedServer], loads: BackendLoads, now: float
    ) -> dict[ServerKey, tuple[int, int]]:
        """Return the limits of the servers that take requests, for HTTP and gRPC.

        Args:
            plan: the plan that HAProxy runs.
            servers: the assignment of the pods.
            loads: HAProxy's current loads.
            now: monotonic time, in seconds.
        """
        ready = {server.address: server.key for server in servers if server.state == "ready"}
        if not plan.exchanges_loads:
            return dict.fromkeys(ready.values(), (plan.max_connections, plan.max_connections))
        self._started_at = now if self._started_at is None else self._started_at
        # With an objective, requests are rejected, so a share follows the demand sooner.
        half_life_s = OBJECTIVE_HALF_LIFE_S if plan.objective_ms else shares.HALF_LIFE_S
        self._measure(ready, loads, now, half_life_s)
        unknown = max(plan.balancers - 1 - len(self.others), 0) if now - self._started_at < WAIT_S else 0
        if plan.finds_concurrency and not plan.max_concurrency:
            self._adopt()
            if not unknown:
                self._find(plan, ready, now)
        result: dict[ServerKey, tuple[int, int]] = {}
        for slot in {key.slot for key in ready.values()}:
            bounds = {address: self.bound(plan, address) for address, key in ready.items() if key.slot == slot}
            shared = {address: bound for address, bound in bounds.items() if bound}
            limits = shares.pod_limits(shared, slot, self.own, self.others, unknown=unknown)
            result |= {
                ready[address]: limits.get(address, (plan.max_connections, plan.max_connections)) for address in bounds
            }
        return result

    def bound(self, plan: BalancerPlan, address: str) -> int:
        """Return the maximum number of requests in progress at a pod, over all balancers; 0 if there is no maximum."""
        bound, most = self._bound(plan, address), self.objective_bound
        return min(bound, most) if bound and most else bound or most

    def _bound(self, plan: BalancerPlan, address: str) -> int:
        if not (plan.max_concurrency or plan.finds_concurrency):
            return 0
        revision = self._revisions.get(address, "")
        facts = self.facts.get(revision)
        if plan.max_concurrency or (facts is not None and facts.batches):
            return plan.max_concurrency
        if bound := self.measured.get(revision):
            return bound
        # A pod whose configuration was not read yet may compute one request at a time.
        return initial_bound(facts or ModelConcurrency(), _most_unproved(plan))

    def at_once(self, plan: BalancerPlan) -> tuple[int, bool]:
        """Return the number of requests that a pod computes at once, and whether the model is computed in batches.

        If it is, the number is that of the model's instances in the pod.
        """
        facts = self._known_facts
        if plan.max_batch > 1 or any(fact.batches for fact in facts):
            return self.instances(plan), True
        serial = max(min((fact.instances for fact in facts), default=1), 1)
        bounds = [bound for address in self.own.pods if (bound := self.bound(plan, address))]
        overlaps = any(fact.decoupled for fact in facts) or min(bounds, default=0) > _most_unproved(plan)
        return max(serial, min(bounds, default=1)) if overlaps else serial, False

    def instances(self, plan: BalancerPlan) -> int:
        """Return the number of instances of the model in a pod.

        It is the number in the plan, or that in Triton's configuration if it is larger: config.pbtxt may set more
        instances than the spec.
        """
        return max(min((fact.instances for fact in self._known_facts), default=1), plan.instances)

    @property
    def _known_facts(self) -> list[ModelConcurrency]:
        return [self.facts[revision] for revision in set(self._revisions.values()) if revision in self.facts]

    def fills_servers(self, plan: BalancerPlan) -> bool:
        """Return True if the limit of each server is the number of requests that it computes at once."""
        return (plan.finds_concurrency or plan.max_concurrency > 0) and not self.at_once(plan)[1]

    def share(self, balancers: int) -> float:
        """Return this balancer's share of the demand of all `balancers` of the plan, from 0 to 1.

        If there is no demand, all shares are equal.
        """
        own, *others = (sum(map(sum, load.demand.values())) for load in (self.own, *self.others))
        # A balancer whose load is unknown is assumed to have the same demand as this one.
        total = own + sum(others) + own * max(balancers - 1 - len(others), 0)
        return own / total if total >= MIN_DEMAND else 1 / balancers

    @property
    def sent(self) -> int:
        """Maximum number of requests that this balancer may have in progress at all pods together."""
        return sum(sum(pod.held) for pod in self.own.pods.values())

    @property
    def has_late(self) -> bool:
        """Whether any balancer has late requests, which wait behind all others."""
        return self.own.late > 0 or any(load.late for load in self.others)

    def elsewhere(self, balancers: int) -> Elsewhere | None:
        """Return the users' requests in the other balancers; None if any of their loads is unknown."""
        if len(self.others) < balancers - 1:
            return None
        return Elsewhere(
            sum(sum(load.waiting.values()) for load in self.others),
            sum(load.inflight - load.lower_sent for load in self.others),
            sum(load.late for load in self.others),
        )

    @property
    def users_part(self) -> float | None:
        """Share of users' requests in all requests in progress at pods, over all balancers.

        None if there are no requests from batch inference.
        """
        loads = (self.own, *self.others)
        inside, lower = sum(load.inflight for load in loads), sum(load.lower_sent for load in loads)
        if not any(load.lower for load in loads):
            return None
        return max(inside - lower, 0) / max(inside, 1)

    def served_share(self, balancers: int) -> float | None:
        """Return this balancer's share of the requests that may be in progress at the pods.

        Return None if none may be in progress, or if a balancer's load is unknown.
        """
        total = self.sent + sum(sum(pod.held) for load in self.others for pod in load.pods.values())
        return self.sent / total if total and len(self.others) >= balancers - 1 else None

    def _measure(self, ready: Mapping[str, ServerKey], loads: BackendLoads, now: float, half_life_s: float) -> None:
        demand: dict[str, tuple[float, float]] = {}
        for slot, waiting in loads.waiting.items():
            served = [load.inflight for key, load in loads.servers.items() if key.slot == slot]
            current = (float(waiting[0] + sum(a for a, _ in served)), float(waiting[1] + sum(b for _, b in served)))
            if (total := sum(current)) > 0:
                more = 1 + max(self.rejected_load, loads.late) / total
                current = (current[0] * more, current[1] * more)
            before = self.own.demand.get(slot, (0.0, 0.0))
            demand[slot] = shares.decayed(before, current, lasted_s=now - self._updated_at, half_life_s=half_life_s)
        self._updated_at = now
        self.own = BalancerLoad(
            self.agent,
            demand,
            {slot: sum(pair) for slot, pair in loads.waiting.items()},
            {address: loads.servers[key] for address, key in ready.items() if key in loads.servers},
            dict(self.measured),
            *self.lower,
            late=loads.late,
        )

    def _adopt(self) -> None:
        """Adopt the maximum concurrencies measured by agents whose names sort before this agent's name.

        For revisions that this agent hasn't measured, adopt the values of any agent.
        """
        for load in sorted(self.others, key=lambda load: load.agent, reverse=True):
            for revision, bound in load.found.items():
                if revision not in self.measured or load.agent < self.agent:
                    self._keep(revision, bound)

    def _find(self, plan: BalancerPlan, ready: Mapping[str, ServerKey], now: float) -> None:
        if any(load.agent < self.agent for load in self.others):
            self._finders.clear()
            return
        self._answered = {key: count for key, count in self._answered.items() if key[1] in ready}
        revisions: dict[str, list[str]] = {}
        for address in ready:
            revisions.setdefault(self._revisions.get(address, ""), []).append(address)
        for revision, addresses in revisions.items():
            facts = self.facts.get(revision)
            if facts is None or facts.batches:
                continue
            if revision not in self._finders:
                self._finders[revision] = ConcurrencyFinder(
                    facts,
                    most_unproved=_most_unproved(plan),
                    drain_s=plan.drain_ms / 1000,
                    measured=self.measured.get(revision, 0),
                )
            slots = {ready[address].slot for address in addresses}
            self._keep(revision, self._finders[revision].add(self._load(revision, addresses, slots, now), now))
        self._finders = {revision: self._finders[revision] for revision in self._finders if revision in revisions}
        self._pending = None

    def _load(self, revision: str, addresses: list[str], slots: set[str], now: float) -> Load:
        loads, inflight, answered = (self.own, *self.others), 0, 0
        for load in loads:
            for address in addresses:
                if (pod := load.pods.get(address)) is not None:
                    inflight += sum(pod.inflight)
                    key = (load.agent, address)
                    before, self._answered[key] = self._answered.get(key, pod.answered), pod.answered
                    answered += max(pod.answered - before, 0)
        recent = self._inflight.setdefault(revision, deque())
        recent.append((now, inflight))
        while now - recent[0][0] > _MAX_SAMPLE_AGE_S:
            recent.popleft()
        count, total_s = self._executions.get(revision, (0.0, 0.0))
        return Load(
            pods=len(addresses),
            inflight=inflight,
            waiting=sum(load.waiting.get(slot, 0) for load in loads for slot in slots),
            answered=answered,
            computing=self._computing(addresses, recent),
            execution_s=total_s / count if count else None,
            overlaps=self._compute.get(revision, ComputeTime()).overlaps(self.facts[revision].instances),
        )

    def _computing(self, addresses: list[str], recent: deque[tuple[float, int]]) -> int | None:
        """Return the minimum number of requests in the pods, but not in Triton's queues, since shortly before the sample.

        The result is None if the sample lacks one of the pods, or if it began before `recent`: (time, requests in progress).
        """
        pods = [self._pods.get(address, "") for address in addresses]
        if self._pending is None or not self._pending.keys() >= set(pods) or recent[0][0] > self._sampled_at:
            return None
        begin = max((at for at, _ in recent if at <= self._sampled_at - _RECENT_S), default=recent[0][0])
        return min(count for at, count in recent if at >= begin) - sum(self._pending[pod] for pod in pods)

    def _keep(self, revision: str, bound: int) -> None:
        if self.measured.get(revision) != bound:
            self.measured.pop(revision, None)
            self.measured[revision] = bound
            while len(self.measured) > MAX_REVISIONS:
                del self.measured[next(iter(self.measured))]
