"""Lookups of a model's balancer pods and server Deployments in the caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from halcyon.api.documents.model_overlay import Overlay
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.serving_revision import main_deployment, serving_revision
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import gpu, names
from halcyon.render.revision import Revision, read
from halcyon.scaling.planner.objectives import Serving


def balancers(caches: ClusterState, key: Key) -> list[Object]:
    """Return a model's balancer pods, including those that are being deleted."""
    return caches.pods.find(key.namespace, f"balancer/{key.name}")


def ready_balancers(caches: ClusterState, key: Key) -> frozenset[str]:
    """Return the names of a model's ready balancer pods."""
    return frozenset(pod["metadata"]["name"] for pod in balancers(caches, key) if pods.is_ready(pod))


def servers(caches: ClusterState, key: Key) -> Object | None:
    """Return the main server Deployment of a model, which has most replicas; None if it has none."""
    return main_deployment(_server_deployments(caches, key))


def serving_key(caches: ClusterState, key: Key) -> str:
    """Return the key of a model's serving revision (`serving_revision`); empty if it has none."""
    return serving_revision(_server_deployments(caches, key), caches.pods.find(key.namespace, key.name))


def stored_revision(caches: ClusterState, key: Key, revision_key: str) -> Revision | None:
    """Return a revision of a model from its ControllerRevision; None if it isn't stored, or if it can't be read."""
    record = caches.children[kinds.CONTROLLER_REVISION].get(Key(key.namespace, names.revision(key.name, revision_key)))
    return None if record is None else read(record)


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
    """Return the largest number of GPUs per pod in a model's server Deployments; None if there is no Deployment yet."""
    return max(map(_gpus, _server_deployments(caches, key)), default=None)


def deployed_replicas(caches: ClusterState, key: Key) -> int | None:
    """Return the replicas of all server Deployments of a model; None if there is no Deployment yet."""
    counts = list(map(_replicas, _server_deployments(caches, key)))
    return sum(counts) if counts else None


def _replicas(deployment: Object) -> int:
    return int(deployment["spec"].get("replicas") or 0)


def _gpus(deployment: Object) -> int:
    try:
        return gpu.count(deployment["spec"].get("template") or {})
    except ValueError:  # a manual edit that isn't a whole number of GPUs; the next reconcile undoes it
        return 0


def _server_deployments(caches: ClusterState, key: Key) -> Iterator[Object]:
    """Yield the existing server Deployments of a model, at most one per slot."""
    deployments = caches.children[kinds.DEPLOYMENT]
    slots = (deployments.get(Key(key.namespace, names.server(key.name, slot))) for slot in names.SLOTS)
    return (deployment for deployment in slots if deployment is not None)
