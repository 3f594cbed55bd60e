"""Reservations of GPUs for the ModelDeployments of a namespace, so that a site can limit a namespace.

Accepted specs count, first come, first served. A share is reserved in the event-loop turn in which the plan is checked, before
anything is awaited: two plans made at the same time must not both find the last GPUs free. It is released only once none of its pods
can exist any more. A model counts for the largest of three shares. Only the first, `granted`, is a right that a lower limit doesn't
take away. So a mere reservation never lets a plan pass that exceeds the limit.

what happens to a model                                 granted          sent                     asked
a plan was checked                                      -                -                        its share
its servers' Deployments were written, or may have been -                the larger, with asked   -
all of the plan was written                             asked            0                        0
the reconcile ended otherwise: refused, failed          -                -                        0
it was deleted, its Deployments still exist             0                what they hold           0
it was deleted, and so were they                        (forgotten)

After a restart a model is granted the share of its accepted spec, or what its Deployments hold if that is more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from halcyon.api.conditions import Reason
from halcyon.api.policy.python_rules import replicas
from halcyon.api.spec import Spec
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.desired.plan import ReconcilePlan, is_servers
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import held_gpus, servers
from halcyon.control.state.scope import Gpus
from halcyon.kube.kinds import Key
from halcyon.render import gpu


@dataclass(frozen=True, slots=True)
class _Share:
    """GPUs of one model, by the table above."""

    granted: int = 0
    sent: int = 0
    asked: int = 0

    @property
    def counted(self) -> int:
        return max(self.granted, self.sent, self.asked)


_NONE = _Share()


@dataclass
class GpuReservations:
    """The reservations of all models."""

    caches: ClusterState
    specs: SpecsInForce
    enqueue: Callable[[Key], None]
    limited: bool
    """Whether the site has a limit at all. If not, nothing is counted."""

    _shares: dict[str, dict[Key, _Share]] | None = None
    """Shares by namespace; None until they are first needed."""
    _refused: set[Key] = field(default_factory=set)

    def gpus(self, key: Key) -> Gpus:
        """Return the GPUs that this ModelDeployment may have, and those that all others of its namespace may have."""
        if not self.limited:
            return Gpus()
        shares = self._of(key.namespace)
        elsewhere = sum(share.counted for other, share in shares.items() if other != key)
        return Gpus(shares.get(key, _NONE).granted, elsewhere)

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Reserve the GPUs of a plan. Must be called in the event-loop turn in which the plan was made."""
        if not self.limited:
            return
        refused = plan.acceptance.reason is Reason.POLICY_DENIED
        (self._refused.add if refused else self._refused.discard)(key)
        share = self._share(key)
        # Without a spec in force nothing is written or deleted: what exists stays.
        asked = max(share.granted, share.sent) if plan.spec is None else _asked(plan, plan.spec)
        self._put(key, replace(share, asked=asked))

    def sent(self, key: Key) -> None:
        """Record that the plan's server Deployments were written, or may have been because the response was lost."""
        if self.limited:
            share = self._share(key)
            self._put(key, replace(share, sent=max(share.sent, share.asked)))

    def written(self, key: Key) -> None:
        """Record that all of the plan is in place: the model is granted what it requested, and no more."""
        if self.limited:
            self._put(key, _Share(granted=self._share(key).asked))

    def withdrawn(self, key: Key) -> None:
        """Withdraw the reservation of a reconcile that ended before all of the plan was written."""
        if self.limited:
            self._put(key, replace(self._share(key), asked=0))

    def deleted(self, key: Key) -> None:
        """Record that the ModelDeployment was deleted. GPUs of its Deployments are free once the garbage collector has deleted these."""
        if not self.limited:
            return
        self._refused.discard(key)
        self._put(key, _Share(sent=held_gpus(self.caches, key)))

    def _put(self, key: Key, share: _Share) -> None:
        shares = self._of(key.namespace)
        before = shares.pop(key, _NONE)
        if share != _NONE:
            shares[key] = share
        if share.counted < before.counted:
            self._again(key)

    def _again(self, key: Key) -> None:
        """Requeue the ModelDeployments that the policy has refused: there may be enough GPUs for them now."""
        for other in self._refused:
            if other.namespace == key.namespace and other != key:
                self.enqueue(other)

    def _share(self, key: Key) -> _Share:
        return self._of(key.namespace).get(key, _NONE)

    def _of(self, namespace: str) -> dict[Key, _Share]:
        if self._shares is None:
            self._shares = {}
            for key in self.caches.resources.all_keys():
                self._shares.setdefault(key.namespace, {})[key] = _Share(granted=self._earlier(key))
        return self._shares.setdefault(namespace, {})

    def _earlier(self, key: Key) -> int:
        """Return the share of a model that this process hasn't planned yet, from the state that an earlier process has left."""
        there = held_gpus(self.caches, key)
        spec = self.specs.get(key)
        if spec is None:
            return there
        deployed = servers(self.caches, key)
        count = replicas(spec) if spec.scaling or deployed is None else int(deployed["spec"].get("replicas") or 0)
        return max(spec.runtime.gpus * count, there)


def _asked(plan: ReconcilePlan, spec: Spec) -> int:
    """Return the maximum GPUs of a plan: its maximum replicas times the GPUs of the largest pod among the revisions that it keeps."""
    if plan.conflicts and not any(map(is_servers, plan.then)):
        return 0
    slots = () if plan.rollout is None else plan.rollout.slots
    return replicas(spec) * max([spec.runtime.gpus, *(gpu.count(slot.revision.template) for slot in slots)])
