"""GPUs that the ModelDeployments of a namespace may have, so that a site can hold a namespace to a limit.

What counts is what was accepted: who comes first has it. It is reserved in the turn in which it is planned, for two that are planned
at the same time must not both find the last GPUs free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from halcyon.api.conditions import Reason
from halcyon.api.policy_findings import replicas
from halcyon.control import kinds, seal
from halcyon.control.caches import Caches
from halcyon.control.found import servers
from halcyon.control.kinds import Key
from halcyon.control.plan import Plan
from halcyon.control.view import Gpus
from halcyon.render import names, revision


@dataclass
class NamespaceGpus:
    """The ledger."""

    caches: Caches
    enqueue: Callable[[Key], None]
    limited: bool
    """Whether the site has a limit at all: otherwise nothing is counted."""

    _held: dict[str, dict[Key, int]] | None = None
    """By namespace; None until it is asked for the first time."""
    _refused: set[Key] = field(default_factory=set)

    def __call__(self, key: Key) -> Gpus:
        """What this ModelDeployment may have, and what all others of its namespace may."""
        if not self.limited:
            return Gpus()
        held = self._of(key.namespace)
        own = held.get(key, 0)
        return Gpus(own, sum(held.values()) - own)

    def planned(self, key: Key, plan: Plan) -> None:
        """Reserve what the plan in force may have."""
        if not self.limited:
            return
        held = self._of(key.namespace)
        before = held.get(key, 0)
        held[key] = 0 if plan.spec is None else plan.spec.runtime.gpu.count * replicas(plan.spec)
        refused = plan.acceptance.reason is Reason.POLICY_DENIED
        (self._refused.add if refused else self._refused.discard)(key)
        if held[key] < before:
            self._again(key)

    def gone(self, key: Key) -> None:
        """The ModelDeployment is no more."""
        if not self.limited:
            return
        self._refused.discard(key)
        if self._of(key.namespace).pop(key, 0):
            self._again(key)

    def _again(self, key: Key) -> None:
        """Whom the policy has refused may have room now."""
        for other in self._refused:
            if other.namespace == key.namespace and other != key:
                self.enqueue(other)

    def _of(self, namespace: str) -> dict[Key, int]:
        if self._held is None:
            self._held = {}
            for key in self.caches.resources.keys():  # noqa: SIM118  # an informer is no dict
                self._held.setdefault(key.namespace, {})[key] = self._found(key)
        return self._held.setdefault(namespace, {})

    def _found(self, key: Key) -> int:
        """Of a model that this process hasn't planned yet: as an earlier one has left it."""
        kept = self.caches.children[kinds.CONFIG_MAP].get(Key(key.namespace, names.balancer(key.name)))
        records = self.caches.children[kinds.CONTROLLER_REVISION].find(key.namespace, key.name)
        spec = None if kept is None else seal.read(key.name, kept, filter(None, map(revision.read, records)))
        if spec is None:
            return 0
        there = servers(self.caches, key)
        count = replicas(spec) if spec.scaling or there is None else int(there["spec"].get("replicas") or 0)
        return spec.runtime.gpu.count * count
