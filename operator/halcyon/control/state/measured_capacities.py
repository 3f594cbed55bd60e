"""Measured capacities of models, from the cached ConfigMaps NAME-capacity.

A ConfigMap is read again only after it, the spec or the server Deployment has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halcyon.api.documents import measured_capacity
from halcyon.api.documents.measured_capacity import GPU_PRODUCT_LABEL, MeasuredCapacityError, Served
from halcyon.api.spec import Spec
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import server_versions, servers, serving_spec
from halcyon.control.state.scope import Measured
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names


@dataclass(slots=True)
class _CachedCapacity:
    """Measured capacity of a model, and the objects from which it was read."""

    changes: tuple[int, int]
    """Change counters of the caches of ConfigMaps and Deployments at the last check. They count the changes of all
    models."""
    spec: Spec
    versions: tuple[Any, ...]
    """ResourceVersions of the ConfigMap and of the server Deployments."""
    measured: Measured


@dataclass
class MeasuredCapacities:
    """Measured capacities of all models, read from ConfigMaps."""

    caches: ClusterState
    _cached: dict[Key, _CachedCapacity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep references to the informers of ConfigMaps and Deployments. Each decision reads their change counters."""
        self._config_maps = self.caches.children[kinds.CONFIG_MAP]
        self._deployments = self.caches.children[kinds.DEPLOYMENT]

    def of(self, key: Key, spec: Spec) -> Measured:
        """Return the capacity that `halcyon bench` has measured for a model, if it applies to the served revision.

        The result is the same object until the capacity changes.
        """
        changes, cached = (self._config_maps.changes, self._deployments.changes), self._cached.get(key)
        if cached is not None and cached.spec is spec and cached.changes == changes:
            return cached.measured
        config_map = Key(key.namespace, names.measured_capacity(key.name))
        versions = (self._config_maps.version(config_map), *server_versions(self.caches, key))
        if cached is not None and (cached.spec, cached.versions) == (spec, versions):
            cached.changes = changes
            return cached.measured
        serving = served(key.name, servers(self.caches, key), serving_spec(self.caches, key, spec))
        capacity = measured(self._config_maps.get(config_map), serving)
        if cached is not None and cached.measured == capacity:
            capacity = cached.measured
        self._cached[key] = _CachedCapacity(changes, spec, versions, capacity)
        return capacity

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._cached.pop(key, None)


def served(name: str, deployment: Object | None, spec: Spec) -> Served:
    """Return the revision, image, GPU product and number of instances with which a model serves now. Pure.

    They come from the model's server Deployment and spec.
    """
    instances = (spec.runtime.instances_per_gpu or 1) * max(spec.runtime.gpus, 1)
    if deployment is None:
        return Served(instances=instances)
    template = deployment["spec"]["template"]
    revision = (template["metadata"].get("labels") or {}).get(names.REVISION_LABEL)
    pod = template.get("spec") or {}
    return Served(
        revision=names.revision(name, revision) if revision else "",
        image=str(next((container.get("image") for container in pod.get("containers") or ()), "")),
        gpu_product=str((pod.get("nodeSelector") or {}).get(GPU_PRODUCT_LABEL) or ""),
        instances=instances,
    )


def measured(config_map: Object | None, serving: Served) -> Measured:
    """Return the measured capacity in a ConfigMap, if it applies to the revision that a model serves now. Pure."""
    if config_map is None or not serving.revision:
        return Measured(serving)
    try:
        document = measured_capacity.read(config_map)
        return Measured(serving, document, measured_capacity.line_for(document, serving))
    except MeasuredCapacityError as error:
        return Measured(serving, ignored=f"ConfigMap {config_map['metadata']['name']} is ignored: {error}")
