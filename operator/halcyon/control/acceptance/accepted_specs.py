"""The spec in force of every ModelDeployment, read from the balancer's ConfigMap so that both operator replicas can read it.

The leader writes it there once it has accepted it; the standby reads it from its cache. No component downstream of the controller reads
the raw spec. Tenants may write to that ConfigMap too, so its text counts only if it matches the digest on the newest ControllerRevision
(`accepted_spec_digest`).

the ConfigMap                        its digest matches      in force
there, and this model's own          yes                     the text
there, and this model's own          no                      the last text that matched, if this process has seen one
deleted, or taken from this model    -                       the same
any, and the model itself is gone    -                       nothing

With nothing in force there is no opinion: replicas stay as they are. A ControllerRevision is written before the text that it protects,
so a new spec is in force once both are in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.acceptance.accepted_spec_digest import NOT_ACCEPTED
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.ownership import belongs
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names, revision

_SUFFIX = names.balancer("")


@dataclass(slots=True)
class _InForce:
    """The last text that matched its digest."""

    text: str
    spec: Spec | None = None
    parsed: bool = False
    """Whether `text` was parsed. It is parsed on the first use: most texts change again before they are used."""


class SpecsInForce(Protocol):
    """The specs in force, by model."""

    def get(self, key: Key, /) -> Spec | None:
        """Return the spec in force, None if none is known."""


class AcceptedSpecs:
    """The specs in force. A digest is checked once per change of its input, and each text is parsed once."""

    def __init__(self, caches: ClusterState) -> None:
        """`caches` holds the ConfigMaps, the ControllerRevisions, and the ModelDeployments."""
        self._resources = caches.resources
        self._maps = caches.children[kinds.CONFIG_MAP]
        self._records = caches.children[kinds.CONTROLLER_REVISION]
        self._in_force: dict[Key, _InForce] = {}
        self._stale = set(caches.resources.all_keys())
        """Models with a change since they were last checked."""
        self._resources.listeners.append(self._resource_changed)
        self._maps.listeners.append(self._map_changed)
        self._records.listeners.append(self._record_changed)

    def get(self, key: Key) -> Spec | None:
        """Return the spec in force, None if none is known. Its replicas are not meaningful."""
        if key in self._stale:
            self._look(key, self._maps.get(Key(key.namespace, names.balancer(key.name))))
        held = self._in_force.get(key)
        if held is None:
            return None
        if not held.parsed:
            held.parsed = True
            try:
                held.spec = parse(key.name, json.loads(held.text))
            except NOT_ACCEPTED:  # accepted by a version that knows more than this one
                held.spec = None
        return held.spec

    def _look(self, key: Key, config_map: Object | None) -> None:
        """Take over the text of a ConfigMap if it is the accepted spec."""
        self._stale.discard(key)
        resource = self._resources.get(key)
        if resource is None:
            return
        uid = resource["metadata"]["uid"]
        if config_map is None or not belongs(config_map, uid):
            return
        records = (r for r in self._records.find(key.namespace, key.name) if belongs(r, uid))
        text = accepted_spec_digest.text_of(config_map, filter(None, map(revision.read, records)))
        held = self._in_force.get(key)
        if text is not None and (held is None or held.text != text):
            self._in_force[key] = _InForce(text)

    def _map_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if not key.name.endswith(_SUFFIX):
            return
        model = Key(key.namespace, key.name.removesuffix(_SUFFIX))
        if model in self._stale and before is not None:
            # The text before wasn't used since it was accepted. It is in force all the same, whatever overwrites it.
            self._look(model, before)
        self._look(model, after)

    def _record_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        for obj in (before, after):
            owner = ((obj or {"metadata": {}})["metadata"].get("labels") or {}).get(names.OWNER_LABEL)
            if owner:
                self._stale.add(Key(key.namespace, owner))

    def _resource_changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None and before["metadata"]["uid"] == after["metadata"]["uid"]:
            return
        # For another ModelDeployment of the same name nothing was accepted yet.
        self._in_force.pop(key, None)
        if after is None:
            self._stale.discard(key)
        else:
            self._stale.add(key)


def with_scaling(caches: ClusterState, specs: SpecsInForce) -> Iterable[tuple[Key, Spec]]:
    """Yield every model with scaling, and its spec in force."""
    for key in caches.resources.all_keys():
        spec = specs.get(key)
        if spec is not None and spec.scaling is not None:
            yield key, spec
