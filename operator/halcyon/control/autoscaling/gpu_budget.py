"""The site's GPU budget: what each model may have of it, kept between the moments at which it is shared anew. Pure.

A model that asks for more than it was granted last gets it at once where GPUs are free; where none are, it has what it had
until all demands are shared again (`share`, once a second at most). Nobody is shrunk for another: a pod that serves is worth
more than one that has to start. Not here: how it is shared (`scaling.budget`), what a model wants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from halcyon.kube.kinds import Key
from halcyon.scaling.gpu_budget import Budget, Demand, Grant, allocate
from halcyon.scaling.policy.decision import ReplicaLimit


@dataclass
class GpuBudget:
    """Demands and grants of all models."""

    gpus: int
    """That all models together may hold."""
    _demands: dict[Key, Demand] = field(default_factory=dict)
    _granted: dict[Key, int] = field(default_factory=dict)
    _free: int = 0
    _stale: bool = True

    def __post_init__(self) -> None:
        """Nothing is granted yet."""
        self._free = self.gpus

    def ask(self, key: Key, *, wanted: int, current: int, gpus: int, priority: int = 0) -> ReplicaLimit | None:
        """What a model may have; None where that is what it wants.

        Args:
            key: the model.
            wanted: replicas that its decision asks for.
            current: replicas in force.
            gpus: of one replica; 0 for a model that needs no budget.
            priority: of its pods; higher goes first.
        """
        if not gpus:
            self.forget(key)
            return None
        self._free += self._held(key)
        demand = Demand(str(key), wanted, gpus, current, priority=priority, need=float(wanted))
        if demand != self._demands.get(key):
            self._demands[key] = demand
            self._stale = True
        allowed = max(self._granted.get(key, 0), current)
        if wanted > allowed and wanted * gpus <= self._free:
            allowed = wanted
        self._granted[key] = min(wanted, allowed)
        self._free -= self._held(key)
        if wanted <= allowed:
            return None
        return ReplicaLimit("budget", allowed, Grant(str(key), allowed, wanted, gpus, "site", self.gpus).say())

    def known(self) -> set[Key]:
        """Whoever asks for a part of it."""
        return set(self._demands)

    def forget(self, key: Key) -> None:
        """The model asks for nothing any more."""
        self._free += self._held(key)
        self._granted.pop(key, None)
        if self._demands.pop(key, None) is not None:
            self._stale = True

    def share(self) -> list[Key]:
        """Share the budget among all demands, where any has changed; gives the models that may have more than before."""
        if not self._stale:
            return []
        self._stale = False
        before = self._granted
        grants = allocate((self._lasting(key) for key in self._demands), Budget(self.gpus, preempt=False, fill=True))
        self._granted = {key: min(grants[str(key)].replicas, asked.wanted) for key, asked in self._demands.items()}
        self._free = self.gpus - sum(self._held(key) for key in self._granted)
        return [key for key, count in self._granted.items() if count > before[key]]

    def _lasting(self, key: Key) -> Demand:
        """With what it holds as its floor, and one replica where it has none: that comes before anybody's growth."""
        demand = self._demands[key]
        held = max(demand.current, self._granted[key])
        wanted = max(demand.wanted, held)
        return replace(demand, wanted=wanted, current=held, floor=min(wanted, max(held, 1)))

    def _held(self, key: Key) -> int:
        """GPUs: what was granted may be written any moment, and what runs runs until it is gone."""
        demand = self._demands.get(key)
        return 0 if demand is None else max(self._granted[key], demand.current) * demand.gpus_per_replica
