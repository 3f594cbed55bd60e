"""GPUs that the ModelDeployments of a namespace may have, so that a site can hold a namespace to a limit.

What counts is what was accepted: who comes first has it. It is reserved in the turn of the event loop in which the plan is checked,
before anything is awaited: two that are planned at the same time must not both find the last GPUs free. It is given back only once
nothing of it can be there any more. A model counts for the largest of three shares; the first alone is a right, which a lower limit
doesn't take from it. So what was merely reserved never lets a plan pass that finds no room.

what happens to a model                                 granted          sent                     asked
a plan was checked                                      -                -                        its share
its servers' Deployments were written, or may have been -                the larger, with asked   -
all of the plan was written                             asked            0                        0
the reconcile ended otherwise: refused, failed          -                -                        0
it is gone, its Deployments are not yet                 0                what they hold           0
it is gone, and they are                                (forgotten)

After a restart a model is granted its accepted spec's share, or what its Deployments hold where that is more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from halcyon.api.conditions import Reason
from halcyon.api.policy.python_rules import replicas
from halcyon.api.spec import Spec
from halcyon.control.desired.plan import ReconcilePlan, is_servers
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import held_gpus, servers
from halcyon.control.state.scope import Gpus
from halcyon.kube.kinds import Key
from halcyon.render import server


@dataclass(frozen=True, slots=True)
class _Share:
    """GPUs of one model: the table above."""

    granted: int = 0
    sent: int = 0
    asked: int = 0

    @property
    def counted(self) -> int:
        return max(self.granted, self.sent, self.asked)


_NONE = _Share()


@dataclass
class GpuReservations:
    """The ledger."""

    caches: ClusterState
    spec_of: Callable[[Key], Spec | None]
    """The spec in force."""
    enqueue: Callable[[Key], None]
    limited: bool
    """Whether the site has a limit at all: otherwise nothing is counted."""

    _shares: dict[str, dict[Key, _Share]] | None = None
    """By namespace; None until it is asked for the first time."""
    _refused: set[Key] = field(default_factory=set)

    def __call__(self, key: Key) -> Gpus:
        """What this ModelDeployment may have, and what all others of its namespace may."""
        if not self.limited:
            return Gpus()
        shares = self._of(key.namespace)
        elsewhere = sum(share.counted for other, share in shares.items() if other != key)
        return Gpus(shares.get(key, _NONE).granted, elsewhere)

    def planned(self, key: Key, plan: ReconcilePlan) -> None:
        """Reserve what the plan may have. To be called in the turn in which it was made."""
        if not self.limited:
            return
        refused = plan.acceptance.reason is Reason.POLICY_DENIED
        (self._refused.add if refused else self._refused.discard)(key)
        share = self._share(key)
        # Without a spec in force nothing is written or deleted: what is there stays.
        asked = max(share.granted, share.sent) if plan.spec is None else _asked(plan, plan.spec)
        self._put(key, replace(share, asked=asked))

    def sent(self, key: Key) -> None:
        """The servers' Deployments of the plan were written, or may have been: the answer was lost."""
        if self.limited:
            share = self._share(key)
            self._put(key, replace(share, sent=max(share.sent, share.asked)))

    def written(self, key: Key) -> None:
        """All of the plan is as it should be: it has what it asked for, and no more."""
        if self.limited:
            self._put(key, _Share(granted=self._share(key).asked))

    def withdrawn(self, key: Key) -> None:
        """The reconcile has ended before all of the plan was written."""
        if self.limited:
            self._put(key, replace(self._share(key), asked=0))

    def gone(self, key: Key) -> None:
        """The ModelDeployment is no more; what its Deployments hold is free once the garbage collector has had them."""
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
        """Whom the policy has refused may have room now."""
        for other in self._refused:
            if other.namespace == key.namespace and other != key:
                self.enqueue(other)

    def _share(self, key: Key) -> _Share:
        return self._of(key.namespace).get(key, _NONE)

    def _of(self, namespace: str) -> dict[Key, _Share]:
        if self._shares is None:
            self._shares = {}
            for key in self.caches.resources.keys():  # noqa: SIM118  # an informer is no dict
                self._shares.setdefault(key.namespace, {})[key] = _Share(granted=self._found(key))
        return self._shares.setdefault(namespace, {})

    def _found(self, key: Key) -> int:
        """Of a model that this process hasn't planned yet: as an earlier one has left it."""
        there = held_gpus(self.caches, key)
        spec = self.spec_of(key)
        if spec is None:
            return there
        deployed = servers(self.caches, key)
        count = replicas(spec) if spec.scaling or deployed is None else int(deployed["spec"].get("replicas") or 0)
        return max(spec.runtime.gpu.count * count, there)


def _asked(plan: ReconcilePlan, spec: Spec) -> int:
    """The most that a plan comes to: its highest count, of the pods with the most GPUs among those that it keeps."""
    if plan.strangers and not any(map(is_servers, plan.then)):
        return 0
    slots = () if plan.rollout is None else plan.rollout.slots
    return replicas(spec) * max([spec.runtime.gpu.count, *(server.gpus(slot.revision.template) for slot in slots)])
