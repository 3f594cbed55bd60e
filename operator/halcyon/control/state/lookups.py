"""Lookups of a model's balancer pods and server Deployments in the caches."""

from __future__ import annotations

from collections import Counter
from typing import Any

from halcyon.api.documents.model_overlay import Overlay
from halcyon.api.spec import Spec
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import gpu, names, revision
from halcyon.render.revision import Revision
from halcyon.scaling.planner.objectives import Serving


def balancers(caches: ClusterState, key: Key) -> list[Object]:
    """Return a model's balancer pods, including those that are being deleted."""
    return caches.pods.find(key.namespace, f"balancer/{key.name}")


def ready_balancers(caches: ClusterState, key: Key) -> frozenset[str]:
    """Return the names of a model's ready balancer pods."""
    return frozenset(pod["metadata"]["name"] for pod in balancers(caches, key) if pods.is_ready(pod))


def servers(caches: ClusterState, key: Key) -> Object | None:
    """Return the server Deployment of a model, or that with more replicas if it has two; None if it has none.

    If both have as many replicas, the older one is returned, because the younger one is a canary's.
    """
    deployments = sorted(_server_deployments(caches, key), key=lambda d: d["metadata"].get("creationTimestamp") or "")
    return max(deployments, key=_replicas, default=None)


def serving_revision(caches: ClusterState, key: Key) -> Key:
    """Return the key of the stored revision that a model's servers have, or most ready servers until it is ready."""
    template = ((servers(caches, key) or {}).get("spec") or {}).get("template") or {}
    serving = str((template.get("metadata", {}).get("labels") or {}).get(names.REVISION_LABEL))
    ready = Counter(pods.revision(pod) for pod in caches.pods.find(key.namespace, key.name) if pods.is_ready(pod))
    most = max(sorted(ready), key=ready.__getitem__, default=serving)
    return Key(key.namespace, names.revision(key.name, serving if serving in ready else most))


def serving_spec(caches: ClusterState, key: Key, spec: Spec, stored: Key) -> Spec:
    """Return an accepted spec with the settings of a stored revision (`revision.serving_spec`)."""
    record = caches.children[kinds.CONTROLLER_REVISION].get(stored)
    return revision.serving_spec(key.name, spec, None if record is None else revision.read(record))


def server_versions(caches: ClusterState, key: Key) -> tuple[Any, ...]:
    """Return the resourceVersion of a model's server Deployment in each slot; None for a slot without a Deployment.

    While they don't change, `servers` returns an equal object. Looking up the versions is cheaper.
    """
    deployments = caches.children[kinds.DEPLOYMENT]
    return tuple(deployments.version(Key(key.namespace, names.server(key.name, slot))) for slot in names.SLOTS)


def serving(stored: Revision) -> Serving | None:
    """Return the batch size and the instances of a revision's pods; None if a later version of the operator stored it."""
    try:
        overlay = Overlay.from_json(stored.overlay)
        return Serving(overlay.max_batch_size, (overlay.instances or 1) * max(gpu.count(stored.template), 1))
    except ValueError:
        return None


def held_gpus(caches: ClusterState, key: Key) -> int:
    """Return the number of GPUs that a model's existing server Deployments request, regardless of its spec."""
    return sum(_gpus(deployment) * _replicas(deployment) for deployment in _server_deployments(caches, key))


def gpus_each(caches: ClusterState, key: Key) -> int | None:
    """Return the number of GPUs per server pod in a model's Deployment; None if there is no Deployment yet."""
    deployment = servers(caches, key)
    return None if deployment is None else _gpus(deployment)


def _replicas(deployment: Object) -> int:
    return int(deployment["spec"].get("replicas") or 0)


def _gpus(deployment: Object) -> int:
    try:
        return gpu.count(deployment["spec"].get("template") or {})
    except ValueError:  # a manual edit that isn't a whole number of GPUs; the next reconcile undoes it
        return 0


def _server_deployments(caches: ClusterState, key: Key) -> list[Object]:
    """Return the existing server Deployments of a model, at most one per slot."""
    deployments = caches.children[kinds.DEPLOYMENT]
    slots = (deployments.get(Key(key.namespace, names.server(key.name, slot))) for slot in names.SLOTS)
    return [deployment for deployment in slots if deployment is not None]
