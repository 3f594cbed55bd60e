"""Measured capacities of models, from the cached ConfigMaps NAME-capacity.

A ConfigMap is read again only after it, the spec, the server Deployment or the revision that serves has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halcyon.api.documents import measured_capacity
from halcyon.api.documents.measured_capacity import GPU_PRODUCT_LABEL, MeasuredCapacityError, Served
from halcyon.api.spec import Spec
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import server_versions, servers, serving
from halcyon.control.state.scope import Measured
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.render.revision import Revision, read
from halcyon.scaling.planner.objectives import Serving


@dataclass(slots=True)
class _CachedCapacity:
    """Measured capacity of a model, and the objects from which it was read."""

    changes: tuple[int, ...]
    """Change counters of the caches of ConfigMaps, Deployments and revisions at the last check. They count the changes of all
    models."""
    spec: Spec
    versions: tuple[Any, ...]
    """ResourceVersions of the ConfigMap, of the revision that serves, and of the server Deployments."""
    measured: Measured


@dataclass
class MeasuredCapacities:
    """Measured capacities of all models, read from ConfigMaps."""

    caches: ClusterState
    _cached: dict[Key, _CachedCapacity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep references to the informers. Each decision reads their change counters."""
        self._config_maps = self.caches.children[kinds.CONFIG_MAP]
        self._revisions = self.caches.children[kinds.CONTROLLER_REVISION]
        self._informers = (self._config_maps, self.caches.children[kinds.DEPLOYMENT], self._revisions)

    def of(self, key: Key, spec: Spec) -> Measured:
        """Return the capacity that `halcyon bench` has measured for a model, if it applies to the served revision.

        The result is the same object until the capacity changes.
        """
        changes, cached = tuple([informer.changes for informer in self._informers]), self._cached.get(key)
        if cached is not None and cached.spec is spec and cached.changes == changes:
            return cached.measured
        config_map = Key(key.namespace, names.measured_capacity(key.name))
        deployment = servers(self.caches, key)
        revision = Key(key.namespace, _revision_name(key.name, deployment))
        read_from = (self._config_maps.version(config_map), self._revisions.version(revision))
        versions = (*read_from, *server_versions(self.caches, key))
        if cached is not None and (cached.spec, cached.versions) == (spec, versions):
            cached.changes = changes
            return cached.measured
        record = self._revisions.get(revision)
        serving_now = served(key.name, deployment, spec, None if record is None else read(record))
        capacity = measured(self._config_maps.get(config_map), serving_now)
        if cached is not None and cached.measured == capacity:
            capacity = cached.measured
        self._cached[key] = _CachedCapacity(changes, spec, versions, capacity)
        return capacity

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._cached.pop(key, None)


def served(name: str, deployment: Object | None, spec: Spec, revision: Revision | None = None) -> Served:
    """Return the revision, image, GPU product and number of instances with which a model serves now. Pure.

    They come from the model's server Deployment and the stored `revision` in it. During a canary, and after a rollback,
    the spec has other instances. They are only used if the revision is not stored, or can't be read.
    """
    instances = ((None if revision is None else serving(revision)) or Serving.of(spec)).instances
    if deployment is None:
        return Served(instances=instances)
    pod = deployment["spec"]["template"].get("spec") or {}
    return Served(
        revision=_revision_name(name, deployment),
        image=str(next((container.get("image") for container in pod.get("containers") or ()), "")),
        gpu_product=str((pod.get("nodeSelector") or {}).get(GPU_PRODUCT_LABEL) or ""),
        instances=instances,
    )


def _revision_name(name: str, deployment: Object | None) -> str:
    """Return the name of the revision in a server Deployment of the model `name`; empty if there is none."""
    template = {} if deployment is None else deployment["spec"]["template"]["metadata"]
    revision = (template.get("labels") or {}).get(names.REVISION_LABEL)
    return names.revision(name, revision) if revision else ""


def measured(config_map: Object | None, serving: Served) -> Measured:
    """Return the measured capacity in a ConfigMap, if it applies to the revision that a model serves now. Pure."""
    if config_map is None or not serving.revision:
        return Measured(serving)
    try:
        document = measured_capacity.read(config_map)
        return Measured(serving, document, measured_capacity.line_for(document, serving))
    except MeasuredCapacityError as error:
        return Measured(serving, ignored=f"ConfigMap {config_map['metadata']['name']} is ignored: {error}")
