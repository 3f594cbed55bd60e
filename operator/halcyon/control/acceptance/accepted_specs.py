"""The spec in force of every ModelDeployment, as both replicas can read it: from the balancer's ConfigMap.

The leader writes it there once it has accepted it; the standby has it from its cache. Nobody downstream of the controller reads the
raw spec. Tenants may write into that ConfigMap too, so its text counts only with the seal of the newest record (`seal`).

the ConfigMap                        its text has the seal   in force
there, and this model's own          yes                     the text
there, and this model's own          no                      the last text that had it, as far as this process has seen one
deleted, or taken from this model    -                       the same
any, and the model itself is gone    -                       nothing

With nothing in force there is no opinion: counts stay as they are. A record comes before the text that it seals, so a new spec is in
force once both are here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from halcyon.api.spec import Spec
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance import accepted_spec_digest
from halcyon.control.acceptance.accepted_spec_digest import NOT_ACCEPTED
from halcyon.control.state.cluster_state import ClusterState, belongs
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names, revision

_SUFFIX = names.balancer("")


@dataclass(slots=True)
class _InForce:
    """What was read last with its seal."""

    text: str
    spec: Spec | None = None
    parsed: bool = False
    """Most of what changes is asked for by nobody before it changes again."""


class AcceptedSpecs:
    """Reads specs in force: checks a seal once per change of what it depends on, and parses once per text."""

    def __init__(self, caches: ClusterState) -> None:
        """`caches` holds the ConfigMaps, their records, and the ModelDeployments."""
        self._resources = caches.resources
        self._maps = caches.children[kinds.CONFIG_MAP]
        self._records = caches.children[kinds.CONTROLLER_REVISION]
        self._in_force: dict[Key, _InForce] = {}
        self._stale = set(caches.resources.keys())
        """Models of which something has changed since they were looked at."""
        self._resources.listeners.append(self._resource_changed)
        self._maps.listeners.append(self._map_changed)
        self._records.listeners.append(self._record_changed)

    def __call__(self, key: Key) -> Spec | None:
        """The spec in force; its count is not kept in it. None where none is known to be."""
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
        """Take the text of a ConfigMap where it is what was accepted."""
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
            # Nobody has asked for it since it was accepted: it is in force all the same, whatever is written over it.
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
        # Another one of the same name has accepted nothing yet.
        self._in_force.pop(key, None)
        if after is None:
            self._stale.discard(key)
        else:
            self._stale.add(key)
