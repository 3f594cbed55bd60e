"""Reservations of GPUs by models, which enforce the site's limit on the GPUs of a namespace.

Each model has three numbers of GPUs, and the largest of them counts against the limit:

- `granted`: GPUs of the last plan whose objects were all written, apart from objects that don't affect pods.
- `sent`: GPUs of a plan whose server Deployments were written, or may have been written.
- `requested`: GPUs of the plan of the reconcile in progress.

A plan's GPUs are reserved before anything is awaited. Otherwise two plans made at the same time could both use the last
free GPUs. GPUs are released only when no pod can hold them any more. If the limit is lowered, a model keeps its GPUs in
`granted`, but not those that are only in `sent` or `requested`. After a restart, `granted` is the number of GPUs of the
accepted spec, or of the Deployments if that is larger.
"""

# event                                                        granted          sent                  requested
# a plan was checked                                           -                -                     its GPUs
# server Deployments were written, or may have been            -                max(sent, requested)  -
# all objects that concern pods were written                   requested        0                     0
# the reconcile ended earlier: rejected or failed              -                -                     0
# the ModelDeployment was deleted, its Deployments still exist 0                GPUs of Deployments   0
# the ModelDeployment and its Deployments were deleted         (forgotten)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from halcyon.api.conditions import Reason
from halcyon.api.policy.python_rules import replicas
from halcyon.api.spec import Spec
from halcyon.control.acceptance.accepted_specs import SpecsInForce
from halcyon.control.desired.plan import ReconcilePlan, is_servers
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import deployed_replicas, held_gpus
from halcyon.control.state.scope import Gpus
from halcyon.kube.kinds import Key, Object
from halcyon.render import gpu


@dataclass(frozen=True, slots=True)
class _Share:
    """GPUs that are reserved for one model. The module's docstring explains the fields."""

    granted: int = 0
    sent: int = 0
    requested: int = 0

    @property
    def counted(self) -> int:
        return max(self.granted, self.sent, self.requested)


_NONE = _Share()


@dataclass
class GpuReservations:
    """GPU reservations of all models, which enforce the site's limit per namespace."""

    caches: ClusterState
    specs: SpecsInForce
    enqueue: Callable[[Key], None]
    limited: bool
    """Whether the site limits the GPUs of a namespace. If it doesn't, nothing is reserved."""

    _shares: dict[str, dict[Key, _Share]] | None = None
    """GPUs that are reserved for each model, by namespace; None until reservations are first needed."""
    _rejected: set[Key] = field(default_factory=set)

    def gpus(self, key: Key) -> Gpus:
        """Return two numbers of GPUs: granted to this ModelDeployment, and reserved by others in its namespace."""
        if not self.limited:
            return Gpus()
        shares = self._shares_in(key.namespace)
        elsewhere = sum(share.counted for other, share in shares.items() if other != key)
        return Gpus(shares.get(key, _NONE).granted, elsewhere)

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Reserve the GPUs of a plan. Call this method after the plan was made, before anything is awaited."""
        if not self.limited:
            return
        is_denied = plan.acceptance.reason is Reason.POLICY_DENIED
        (self._rejected.add if is_denied else self._rejected.discard)(key)
        share = self._share(key)
        # Without a spec in force, existing Deployments stay as they are, so their GPUs stay reserved.
        requested = max(share.granted, share.sent) if plan.spec is None else _requested_gpus(plan, plan.spec)
        self._put(key, replace(share, requested=requested))

    def sent(self, key: Key) -> None:
        """Record that server Deployments of a plan were written, or may have been if the response was lost."""
        if self.limited:
            share = self._share(key)
            self._put(key, replace(share, sent=max(share.sent, share.requested)))

    def written(self, key: Key) -> None:
        """Grant the model exactly the GPUs of its plan, now that all objects that affect pods are written."""
        if self.limited:
            self._put(key, _Share(granted=self._share(key).requested))

    def withdrawn(self, key: Key) -> None:
        """Withdraw the reservation of a reconcile that ended before all objects of its plan were written."""
        if self.limited:
            self._put(key, replace(self._share(key), requested=0))

    def replicas(self, key: Key, template: Object, desired: int) -> int:
        """Return the desired number of pods of a template, or the number for which GPUs are reserved if it is lower."""
        gpus_each = gpu.count(template) if self.limited else 0
        return min(desired, self._share(key).counted // gpus_each) if gpus_each else desired

    def deleted(self, key: Key) -> None:
        """Record that the ModelDeployment was deleted. Its GPUs stay reserved until its Deployments are garbage-collected."""
        if not self.limited:
            return
        self._rejected.discard(key)
        self._put(key, _Share(sent=held_gpus(self.caches, key)))

    def _put(self, key: Key, share: _Share) -> None:
        shares = self._shares_in(key.namespace)
        before = shares.pop(key, _NONE)
        if share != _NONE:
            shares[key] = share
        if share.counted < before.counted:
            # Enough GPUs may be free now for other models of the namespace that the limit has rejected.
            for other in self._rejected:
                if other.namespace == key.namespace and other != key:
                    self.enqueue(other)

    def _share(self, key: Key) -> _Share:
        return self._shares_in(key.namespace).get(key, _NONE)

    def _shares_in(self, namespace: str) -> dict[Key, _Share]:
        if self._shares is None:
            self._shares = {}
            for key in self.caches.resources.all_keys():
                self._shares.setdefault(key.namespace, {})[key] = _Share(granted=self._granted_before(key))
        return self._shares.setdefault(namespace, {})

    def _granted_before(self, key: Key) -> int:
        """Return the GPUs that an earlier process granted, from the model's accepted spec and its Deployments."""
        deployed_gpus = held_gpus(self.caches, key)
        spec = self.specs.get(key)
        if spec is None:
            return deployed_gpus
        deployed = deployed_replicas(self.caches, key)
        count = replicas(spec) if spec.scaling or deployed is None else deployed
        return max(spec.runtime.gpus * count, deployed_gpus)


def _requested_gpus(plan: ReconcilePlan, spec: Spec) -> int:
    """Return the maximum number of GPUs that a plan needs.

    It is the maximum number of replicas times the GPUs of a pod, for the revision whose pods need the most GPUs.
    """
    if plan.conflicts and not any(map(is_servers, plan.then)):
        return 0
    slots = () if plan.rollout is None else plan.rollout.slots
    return replicas(spec) * max([spec.runtime.gpus, *(gpu.count(slot.revision.template) for slot in slots)])
