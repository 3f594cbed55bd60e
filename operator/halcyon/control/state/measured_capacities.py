"""Measured capacities of models, from the cached ConfigMaps NAME-capacity.

A ConfigMap is read again only after it, the spec, a server Deployment or the serving revision has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halcyon.api.documents import measured_capacity
from halcyon.api.documents.measured_capacity import GPU_PRODUCT_LABEL, MeasuredCapacityError, Served
from halcyon.api.spec import Spec
from halcyon.control.objects.deployment_status import deployed_revision
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import server_versions, servers, serving, serving_key, stored_revision
from halcyon.control.state.scope import Measured
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names
from halcyon.render.revision import Revision
from halcyon.scaling.planner.objectives import Serving


@dataclass
class MeasuredCapacities:
    """Measured capacities of all models, read from ConfigMaps."""

    caches: ClusterState
    _cached: dict[Key, tuple[Spec, tuple[int, ...], tuple[Any, ...], Measured]] = field(default_factory=dict)
    """Spec, change counters of all models, versions of the objects that were read, and measured capacity of each model."""

    def __post_init__(self) -> None:
        """Keep references to the informers. Each decision reads their change counters."""
        self._config_maps = self.caches.children[kinds.CONFIG_MAP]
        self._revisions = self.caches.children[kinds.CONTROLLER_REVISION]
        deployments = self.caches.children[kinds.DEPLOYMENT]
        self._informers = (self.caches.pods, deployments, self._config_maps, self._revisions)

    def of(self, key: Key, spec: Spec) -> Measured:
        """Return the capacity that `halcyon bench` has measured for a model, if it applies to the served revision.

        The result is the same object until the capacity changes.
        """
        changes, cached = tuple([informer.changes for informer in self._informers]), self._cached.get(key)
        if cached is not None and cached[0] is spec and cached[1] == changes:
            return cached[3]
        config_map = Key(key.namespace, names.measured_capacity(key.name))
        serving_now = serving_key(self.caches, key)
        revision = Key(key.namespace, names.revision(key.name, serving_now))
        read_from = (serving_now, self._config_maps.version(config_map), self._revisions.version(revision))
        versions = (*read_from, *server_versions(self.caches, key))
        if cached is not None and (cached[0], cached[2]) == (spec, versions):
            capacity = cached[3]
        else:
            stored = stored_revision(self.caches, key, serving_now)
            now = served(key.name, serving_now, spec, servers(self.caches, key), stored)
            capacity = measured(self._config_maps.get(config_map), now)
            capacity = cached[3] if cached is not None and cached[3] == capacity else capacity
        self._cached[key] = (spec, changes, versions, capacity)
        return capacity

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted model."""
        self._cached.pop(key, None)


def served(name: str, key: str, spec: Spec, deployment: Object | None, stored: Revision | None) -> Served:
    """Return the revision, image, GPU product and number of instances with which a model serves now. Pure.

    `key` is that of the serving revision. Its pod template is in the main `deployment`, or `stored` if the Deployment
    has another revision. The spec's instances are only used if the revision is not stored, or can't be read.
    """
    instances = ((None if stored is None else serving(stored)) or Serving.of(spec)).instances
    if not key:
        return Served(instances=instances)
    template = stored.template if stored is not None else {}
    if deployment is not None and deployed_revision(deployment) == key:
        template = deployment["spec"]["template"]
    pod = template.get("spec") or {}
    return Served(
        revision=names.revision(name, key),
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
