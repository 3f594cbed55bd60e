"""Grants of GPUs to models from the site's GPU budget. Pure.

If a model needs more GPUs than its grant, it gets them at once if enough GPUs are free. Otherwise it keeps its grant
until the budget is allocated among all models again (`share`, at most once a second). No model is scaled down in favour
of another, because a serving pod is worth more than one that must start first. Out of scope: the allocation algorithm
(`scaling.gpu_budget`), and the desired replicas of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from halcyon.api.resource_limit import ResourceLimit
from halcyon.kube.kinds import Key
from halcyon.scaling.gpu_budget import Budget, Demand, Grant, allocate
from halcyon.scaling.policy.decision import ReplicaLimit


@dataclass
class GpuBudget:
    """Limit on the GPUs that all models of the site may hold in total, with the demand and the grant of each model."""

    gpus: int
    """Maximum number of GPUs that all models may hold in total."""
    _demands: dict[Key, Demand] = field(default_factory=dict)
    _granted: dict[Key, int] = field(default_factory=dict)
    """Number of replicas granted to each model."""
    _free: int = 0
    """Number of GPUs that no model holds; negative if models hold more than the budget."""
    _stale: bool = True
    """Whether a demand has changed since the last allocation among all models."""

    def __post_init__(self) -> None:
        """Initialize the budget without grants, so that all GPUs are free."""
        self._free = self.gpus

    def request(
        self, key: Key, *, desired: int, current: int, gpus: int, priority: int | None = None
    ) -> ReplicaLimit | None:
        """Update a model's demand. Return the limit on its replicas, or None if the demand is fully granted.

        `gpus` are the GPUs of one replica; 0 for a model without GPUs. `priority` is that of the model's pods. Models
        with a higher value are granted GPUs first. None if the model has no pods: the last known priority then applies.
        """
        if not gpus:
            self.forget(key)
            return None
        self._free += self._held(key)
        if priority is None:
            priority = self._demands[key].priority if key in self._demands else 0
        demand = Demand(str(key), desired, gpus, current, priority=priority, need=float(desired))
        if demand != self._demands.get(key):
            self._demands[key] = demand
            self._stale = True
        allowed = max(self._granted.get(key, 0), current)
        if ResourceLimit(self.gpus, self.gpus - self._free).allows(desired * gpus, held=allowed * gpus):
            allowed = max(desired, allowed)
        self._granted[key] = min(desired, allowed)
        self._free -= self._held(key)
        return self._limit(demand, desired, allowed)

    def recommendation_limit(self, key: Key, desired: int) -> ReplicaLimit | None:
        """Return the limit of the free GPUs on replicas that a model recommends but doesn't demand; None if all fit."""
        demand = self._demands.get(key)
        if demand is None:
            return None
        fitting = (self._free + self._held(key)) // demand.gpus_per_replica
        return self._limit(demand, desired, max(fitting, demand.current))

    def _limit(self, demand: Demand, desired: int, allowed: int) -> ReplicaLimit | None:
        if desired <= allowed:
            return None
        grant = Grant(demand.key, allowed, desired, demand.gpus_per_replica, "site", self.gpus)
        return ReplicaLimit("budget", allowed, grant.describe())

    def models(self) -> set[Key]:
        """Return the models that have a demand for GPUs."""
        return set(self._demands)

    def forget(self, key: Key) -> None:
        """Drop a model's demand and its grant, and free its GPUs."""
        self._free += self._held(key)
        self._granted.pop(key, None)
        if self._demands.pop(key, None) is not None:
            self._stale = True

    def share(self) -> list[Key]:
        """Allocate the budget among all models if a demand has changed. Return the models whose grant has grown."""
        if not self._stale:
            return []
        self._stale = False
        before = self._granted
        grants = allocate((self._with_floor(key) for key in self._demands), Budget(self.gpus, preempt=False, fill=True))
        self._granted = {key: min(grants[str(key)].replicas, demand.desired) for key, demand in self._demands.items()}
        self._free = self.gpus - sum(self._held(key) for key in self._granted)
        return [key for key, count in self._granted.items() if count > before[key]]

    def _with_floor(self, key: Key) -> Demand:
        """Return a model's demand with a floor of the replicas that it holds, at least 1, so that it loses none."""
        demand = self._demands[key]
        held = max(demand.current, self._granted[key])
        desired = max(demand.desired, held)
        return replace(demand, desired=desired, current=held, floor=min(desired, max(held, 1)))

    def _held(self, key: Key) -> int:
        """Return the GPUs that a model holds, for its grant or for its current replicas, whichever is larger."""
        demand = self._demands.get(key)
        return 0 if demand is None else max(self._granted[key], demand.current) * demand.gpus_per_replica
