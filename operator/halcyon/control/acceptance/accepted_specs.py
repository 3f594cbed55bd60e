"""The accepted specs of all ModelDeployments, which are read from their balancers' ConfigMaps.

The leader writes a spec to the ConfigMap after accepting it; both operator replicas read it from their caches. Other
components never read the spec of the ModelDeployment itself. Tenants may edit the ConfigMap too, so its text is used
only if it matches the digest on the newest ControllerRevision (`accepted_spec_digest`).

Without an accepted spec no decision is made, and the replicas stay as they are. A ControllerRevision is written before
the text that it protects, so a new spec is used once both are in the cache.
"""

# ConfigMap                                      digest matches   spec in force
# exists, owned by the model                     yes              the text in the ConfigMap
# exists, owned by the model                     no               the last text that matched, if this process has seen one
# deleted, or no longer owned by the model       -                the last text that matched, if this process has seen one
# any, but the ModelDeployment was deleted       -                none

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.acceptance.accepted_spec_digest import NOT_ACCEPTED
from halcyon.control.acceptance.shared_parts import SharedParts
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import serving_key, stored_revision
from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names, revision

_SUFFIX = names.balancer("")


@dataclass(slots=True)
class _InForce:
    """Text of a model's ConfigMap that last matched its digest."""

    text: str
    spec: Spec | None = None
    parsed: bool = False
    """Whether `text` has been parsed. Parsing is deferred until the spec is needed, because many texts change before
    that."""


class SpecsInForce(Protocol):
    """Lookup of the accepted spec of each model."""

    def get(self, key: Key, /) -> Spec | None:
        """Return the accepted spec of a model; None if it is unknown."""


class AcceptedSpecs:
    """Accepted specs of all models, each read from its ConfigMap when it is needed.

    Reads are cheap. The text in a ConfigMap is checked against the digest only after a change of the ConfigMap or of a
    ControllerRevision. It is parsed only once.
    """

    def __init__(self, caches: ClusterState) -> None:
        """Subscribe to changes of the ConfigMaps, the ControllerRevisions and the ModelDeployments in `caches`."""
        self._resources = caches.resources
        self._maps = caches.children[kinds.CONFIG_MAP]
        self._records = caches.children[kinds.CONTROLLER_REVISION]
        self._in_force: dict[Key, _InForce] = {}
        self._parts = SharedParts()
        self._stale = set(caches.resources.all_keys())
        """Keys of the models whose ConfigMap or ControllerRevision has changed since their digest was last checked."""
        self._resources.listeners.append(self._resource_changed)
        self._maps.listeners.append(self._map_changed)
        self._records.listeners.append(self._record_changed)

    def get(self, key: Key) -> Spec | None:
        """Return the accepted spec of a model; None if it is unknown. Its field `replicas` is always 1."""
        if key in self._stale:
            self._update(key, self._maps.get(Key(key.namespace, names.balancer(key.name))))
        accepted = self._in_force.get(key)
        if accepted is None:
            return None
        if not accepted.parsed:
            accepted.parsed = True
            try:
                accepted.spec = self._parts.shared(parse(key.name, json.loads(accepted.text)))
            except NOT_ACCEPTED:  # accepted by an operator version with fields that this one doesn't have
                accepted.spec = None
        return accepted.spec

    def _update(self, key: Key, config_map: Object | None) -> None:
        """Start to use the spec that a ConfigMap contains as text, if the text matches its digest."""
        self._stale.discard(key)
        resource = self._resources.get(key)
        if resource is None:
            return
        uid = resource["metadata"]["uid"]
        if config_map is None or not belongs(config_map, uid):
            return
        records = (r for r in self._records.find(key.namespace, key.name) if belongs(r, uid))
        text = accepted_spec_digest.text_of(config_map, filter(None, map(revision.read, records)))
        accepted = self._in_force.get(key)
        if text is not None and (accepted is None or accepted.text != text):
            self._in_force[key] = _InForce(text)

    def _map_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if not key.name.endswith(_SUFFIX):
            return
        key_of_model = Key(key.namespace, key.name.removesuffix(_SUFFIX))
        if key_of_model in self._stale and before is not None:
            # The previous text hasn't been checked yet. If it was accepted, it stays in force, whatever has overwritten it.
            self._update(key_of_model, before)
        self._update(key_of_model, after)

    def _record_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for obj in (before, after):
            owner = ((obj or {"metadata": {}})["metadata"].get("labels") or {}).get(names.OWNER_LABEL)
            if owner and self._resources.get(Key(key.namespace, owner)) is not None:
                self._stale.add(Key(key.namespace, owner))

    def _resource_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None and before["metadata"]["uid"] == after["metadata"]["uid"]:
            return
        # A new ModelDeployment of the same name has no accepted spec yet.
        self._in_force.pop(key, None)
        if after is None:
            self._stale.discard(key)
        else:
            self._stale.add(key)


class ServingSpecs:
    """Accepted specs, with the serving revision's `model`, `runtime` and `batching` (`revision.serving_spec`)."""

    def __init__(self, caches: ClusterState, accepted: SpecsInForce) -> None:
        """Subscribe to changes of the ModelDeployments in `caches`, to drop the specs of deleted ones."""
        self._caches, self._accepted = caches, accepted
        self._revisions = caches.children[kinds.CONTROLLER_REVISION]
        self._informers = (caches.pods, caches.children[kinds.DEPLOYMENT], self._revisions)
        self._specs: dict[Key, tuple[Spec, tuple[int, ...], tuple[Any, ...], Spec]] = {}
        """Accepted spec, change counters, serving revision with its version, and resulting spec of each model."""
        caches.resources.listeners.append(self._resource_changed)

    def get(self, key: Key) -> Spec | None:
        """Return the spec of a model; None if no accepted spec is known. It is the same object until it changes."""
        accepted = self._accepted.get(key)
        if accepted is None:
            return None
        cached, changes = self._specs.get(key), tuple([informer.changes for informer in self._informers])
        if cached is None or cached[0] is not accepted or cached[1] != changes:
            serving = serving_key(self._caches, key)
            read_from = serving, self._revisions.version(Key(key.namespace, names.revision(key.name, serving)))
            if cached is not None and cached[0] is accepted and cached[2] == read_from:
                spec = cached[3]
            else:
                spec = revision.serving_spec(key.name, accepted, stored_revision(self._caches, key, serving))
                spec = cached[3] if cached is not None and cached[3] == spec else spec
            cached = self._specs[key] = (accepted, changes, read_from, spec)
        return cached[3]

    def _resource_changed(self, key: Key, _before: Object | None, after: Object | None) -> None:
        if after is None:
            self._specs.pop(key, None)


def with_scaling(caches: ClusterState, specs: SpecsInForce) -> Iterable[tuple[Key, Spec]]:
    """Yield the key and the accepted spec of every model whose accepted spec has `scaling`."""
    for key in caches.resources.all_keys():
        spec = specs.get(key)
        if spec is not None and spec.scaling is not None:
            yield key, spec
