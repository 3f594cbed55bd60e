"""External limits on a model's replicas: ResourceQuotas, the site's GPU budget, and the site's switch for scaling down.

The limits are applied to each decision. Out of scope: the evaluation of quotas (`resource_quotas`), grants from the
budget (`gpu_budget`), the switch (`site_hold`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from halcyon.api.spec import Spec
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.site_hold import SiteHold
from halcyon.control.objects import pods, resource_quotas
from halcyon.control.state.cluster_state import QUOTA_INDEX, ClusterState
from halcyon.control.state.lookups import gpus_each, servers
from halcyon.kube.clock import Clock
from halcyon.kube.kinds import Key
from halcyon.scaling.policy.decision import Decision, ReplicaLimit, limited

SETTLED_S = 2.0
"""Seconds after which a quota's usage includes new pods. Until then, the last known limit still applies."""
PROMISE_S = 10.0
"""Seconds within which the pods of a grant are normally created. After that, the grant no longer limits other models."""


@dataclass(frozen=True, slots=True)
class _Grant:
    """Replicas that a model was recently allowed to have. The quotas may not count all of their pods yet."""

    count: int
    """Number of replicas."""
    present: int
    """Number of the model's pods at the time of the grant."""
    at: float
    """Monotonic time at which the replicas were granted, in seconds."""


@dataclass(frozen=True, slots=True)
class _LastLimit:
    """Last known limit of the ResourceQuotas on a model's replicas."""

    present: int
    """Number of the model's pods that have not ended and are not being deleted."""
    since: float
    """Monotonic time since which the model has had the present number of live pods, in seconds."""
    at: float
    """Monotonic time at which the quotas were last evaluated for the model, in seconds."""
    limit: resource_quotas.QuotaLimit


@dataclass
class ReplicaLimits:
    """Limits on scaling decisions: ResourceQuotas, the site's GPU budget, and its switch for scaling down."""

    caches: ClusterState
    specs: SpecsInForce
    """Accepted specs, which may request more GPUs than the serving revision has."""
    clock: Clock
    budget: GpuBudget | None = None
    """The site's GPU budget; None if there is none."""
    hold: SiteHold | None = None
    """The site's switch that stops scaling down; None if the operator runs without it."""

    _limits: dict[Key, _LastLimit] = field(default_factory=dict)
    _granted: dict[str, dict[Key, _Grant]] = field(default_factory=dict)
    """Recent grants of replicas, by namespace and model."""

    def apply(self, key: Key, spec: Spec, decision: Decision) -> Decision:
        """Return the decision, with its desired replicas limited by quotas, GPU budget and the scale-down switch."""
        decision = self._limit(key, spec, decision)
        if self.hold is None or spec.scaling is None:
            return decision
        return self.hold.apply(decision, spec.scaling.max_replicas)

    def _limit(self, key: Key, spec: Spec, decision: Decision) -> Decision:
        is_increase = decision.desired is not None and decision.desired > decision.current
        if self.budget is None and not is_increase:
            return decision  # the usual case: quotas limit only increases
        is_active = spec.scaling is not None and spec.scaling.mode == "Active"
        desired = decision.current if decision.desired is None else decision.desired
        quota = self._quota_limit(key, decision.current) if is_increase else None
        # Request no GPUs of the budget for replicas that the quotas don't allow: other models can use them.
        requested = desired if quota is None else min(desired, quota.replicas)
        limits = (quota, self._budget_limit(key, spec, requested, decision.current, is_active=is_active))
        decision = limited(decision, (limit for limit in limits if limit is not None))
        if is_increase and is_active:
            self._grant(key, decision)
        return decision

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._limits.pop(key, None)
        self._granted.get(key.namespace, {}).pop(key, None)
        if self.budget is not None:
            self.budget.forget(key)

    def share(self, decided: AbstractSet[Key]) -> Iterable[Key]:
        """Allocate the GPU budget, and return the models whose grant has grown. All but `decided` demand their replicas."""
        if self.budget is None:
            return ()
        existing = set(self.caches.resources.all_keys())
        for key in self.budget.models() - existing:
            self.budget.forget(key)
        for key in existing:
            if key not in decided and (gpus := self._gpus(key)) is not None:
                count = self.caches.replicas(key)
                self.budget.request(key, desired=count, current=count, gpus=gpus)
        return self.budget.share()

    def _gpus(self, key: Key) -> int | None:
        """Return the GPUs per replica, by the accepted spec or the server Deployment, the larger of both; None if unknown."""
        spec, present = self.specs.get(key), gpus_each(self.caches, key)
        return present if spec is None else max(spec.runtime.gpus, present or 0)

    def _budget_limit(
        self, key: Key, spec: Spec, desired: int, current: int, *, is_active: bool
    ) -> ReplicaLimit | None:
        if self.budget is None:
            return None
        gpus = max(spec.runtime.gpus, self._gpus(key) or 0)
        priority = max((pods.priority(pod) for pod in self.caches.pods.find(key.namespace, key.name)), default=None)
        demanded = desired if is_active else current  # a recommendation holds no GPUs
        limit = self.budget.request(key, desired=demanded, current=current, gpus=gpus, priority=priority)
        return limit if is_active else self.budget.recommendation_limit(key, desired)

    def _quota_limit(self, key: Key, current: int) -> ReplicaLimit | None:
        """Return the quotas' limit on a model's replicas, not below the current number; None if there is none."""
        quotas = self.caches.quotas.find(key.namespace, QUOTA_INDEX)
        deployment = servers(self.caches, key) if quotas else None
        if deployment is None:
            return None
        present, now = self._present(key), self.clock.monotonic()
        template, promised = deployment["spec"]["template"]["spec"], self._promised(key, now)
        limit = resource_quotas.tightest_limit(quotas, template, present=present, promised=promised)
        if limit is None:
            return None
        last = self._limits.get(key)
        if last is not None and now - last.at > PROMISE_S:
            last = None  # other models may have used the quota since
        since = -math.inf if last is None else last.since if last.present == present else now
        settled = limit if last is None or now - since >= SETTLED_S else last.limit
        self._limits[key] = _LastLimit(present, since, now, settled)
        return ReplicaLimit("quota", max(settled.pods, current), settled.describe())

    def _present(self, key: Key) -> int:
        return sum(pods.is_live(pod) for pod in self.caches.pods.find(key.namespace, key.name))

    def _grant(self, key: Key, decision: Decision) -> None:
        """Record the granted replicas, so that no other model gets the same part of a quota before their pods exist."""
        if decision.desired is None or not self.caches.quotas.find(key.namespace, QUOTA_INDEX):
            return
        now = self.clock.monotonic()
        granted = self._granted.setdefault(key.namespace, {})
        for other in [other for other, grant in granted.items() if now - grant.at >= PROMISE_S]:
            del granted[other]
        before = granted.get(key)
        if before is None or before.count != decision.desired:
            granted[key] = _Grant(decision.desired, self._present(key), now)

    def _promised(self, key: Key, now: float) -> list[resource_quotas.Promised]:
        """Return the pods granted to other models of the namespace that may not be counted in a quota yet."""
        promised = []
        for other, granted in self._granted.get(key.namespace, {}).items():
            deployment = servers(self.caches, other)
            if other == key or deployment is None or now - granted.at >= PROMISE_S:
                continue
            counted = granted.present if now - granted.at < SETTLED_S else self._present(other)
            if counted < granted.count:
                template = deployment["spec"]["template"]["spec"]
                promised.append(resource_quotas.Promised(template, granted.count - counted))
        return promised
