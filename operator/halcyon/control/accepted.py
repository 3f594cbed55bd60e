"""The spec in force of every ModelDeployment, as both replicas can read it: from the balancer's ConfigMap.

The leader writes it there once it has accepted it; the standby has it from its cache. Nobody downstream of the controller
reads the raw spec.
"""

from __future__ import annotations

import json

from halcyon.api.parse import SpecError, parse
from halcyon.api.spec import Spec
from halcyon.control import kinds
from halcyon.control.caches import Caches
from halcyon.control.client import Object
from halcyon.control.kinds import Key
from halcyon.render import balancer, names


class Accepted:
    """Reads specs in force, parsed once per version of their ConfigMap."""

    def __init__(self, caches: Caches) -> None:
        """`caches` holds the ConfigMaps."""
        self._maps = caches.children[kinds.CONFIG_MAP]
        self._parsed: dict[Key, tuple[str, Spec]] = {}
        self._maps.listeners.append(self._changed)

    def __call__(self, key: Key) -> Spec | None:
        """The spec in force; its count is not kept in it. None where none was ever accepted."""
        obj = self._maps.get(Key(key.namespace, names.balancer(key.name)))
        if obj is None or (obj["metadata"].get("labels") or {}).get(names.OWNER_LABEL) != key.name:
            self._parsed.pop(key, None)
            return None
        version = obj["metadata"]["resourceVersion"]
        held = self._parsed.get(key)
        if held is None or held[0] != version:
            try:
                spec = parse(key.name, json.loads(obj["data"][balancer.ACCEPTED_KEY]))
            except (SpecError, KeyError, ValueError):
                return None
            held = self._parsed[key] = (version, spec)
        return held[1]

    def _changed(self, key: Key, before: Object | None, after: Object | None) -> None:
        if before is not None and after is None:
            owner = (before["metadata"].get("labels") or {}).get(names.OWNER_LABEL, "")
            if key.name == names.balancer(owner):
                self._parsed.pop(Key(key.namespace, owner), None)
