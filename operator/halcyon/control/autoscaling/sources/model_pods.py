"""Data about a model's pods and Deployments in the caches, in the form in which the planner reads it.

Out of scope: the agents' reports on the pods (`signals.planner_reading`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halcyon.api.spec import Spec
from halcyon.api.types import duration_s
from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.control.state.lookups import ready_balancers, server_versions, serving, serving_key, stored_revision
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.scaling.planner.objectives import Serving
from halcyon.scaling.planner.reading import PodReading


@dataclass(slots=True)
class ModelPodFacts:
    """Data about a model's pods and Deployments, and the inputs from which it was computed."""

    spec: Spec
    changes: tuple[int, int]
    """Change counters of the caches of pods and Deployments at the last check. They count changes of all models."""
    deployments: tuple[Any, ...]
    """ResourceVersions of the server Deployments."""
    server_pods: Sequence[Object]
    """Server pods from which this data was computed."""
    balancer_pods: Sequence[Object]
    """Balancer pods from which this data was computed."""
    pods: tuple[PodReading, ...]
    balancers: frozenset[str]
    revision: str
    """Key of the serving revision, from whose batches the planner learns the capacity; empty if there is none."""
    of_revision: frozenset[str]
    """Names of the serving revision's pods."""
    settings: Mapping[str, Serving]
    """Batch size and instances of each ready pod whose revision is stored and can be read, by name of the pod."""
    smallest: Serving | None
    """Smallest batch size and instances of the ready pods, so that no capacity is assumed that some pods lack. They are
    the serving revision's if no pod is ready; None if unknown."""


@dataclass(slots=True)
class ModelPods:
    """Cached data about one model's pods, with the times at which they became ready."""

    ready_at: dict[str, float] = field(default_factory=dict)
    """Time at which each pod first became ready, in seconds since the epoch, by the pod's uid."""
    _facts: ModelPodFacts | None = None

    def facts(self, caches: ClusterState, key: Key, spec: Spec) -> ModelPodFacts:
        """Return data about a model's pods. It is computed only if the spec, a pod or a Deployment has changed."""
        pods_now, deployments_now = caches.pods.changes, caches.children[kinds.DEPLOYMENT].changes
        cached = self._facts
        if cached is not None and cached.spec is spec and cached.changes == (pods_now, deployments_now):
            return cached
        deployments, server_pods = server_versions(caches, key), caches.pods.find(key.namespace, key.name)
        is_same = cached is not None and (cached.deployments, cached.server_pods) == (deployments, server_pods)
        revision = cached.revision if cached is not None and is_same else serving_key(caches, key)
        balancer_pods = caches.pods.find(key.namespace, f"balancer/{key.name}")
        inputs = (spec, revision, server_pods, balancer_pods)
        if cached is not None and (cached.spec, cached.revision, cached.server_pods, cached.balancer_pods) == inputs:
            cached.spec, cached.changes, cached.deployments = spec, (pods_now, deployments_now), deployments
            return cached
        ready = {pod["metadata"]["name"]: pods.revision(pod) for pod in server_pods if pods.is_ready(pod)}
        revisions = set(ready.values()) or {revision}
        records = {of: stored for of in revisions if (stored := stored_revision(caches, key, of)) is not None}
        known = {of: settings for of, stored in records.items() if (settings := serving(stored)) is not None}
        facts = self._facts = ModelPodFacts(
            spec=spec,
            changes=(pods_now, deployments_now),
            deployments=deployments,
            server_pods=server_pods,
            balancer_pods=balancer_pods,
            pods=self._readings(server_pods, duration_s(spec.runtime.startup_timeout)),
            balancers=ready_balancers(caches, key),
            revision=revision,
            of_revision=frozenset(pod["metadata"]["name"] for pod in server_pods if pods.revision(pod) == revision),
            settings={name: known[of] for name, of in ready.items() if of in known},
            smallest=_smallest([known.get(of) for of in revisions]),
        )
        return facts

    def _readings(self, server_pods: Sequence[Object], longest_start_s: float) -> tuple[PodReading, ...]:
        before = self.ready_at
        fresh: dict[str, float] = {}
        for pod in server_pods:
            uid = pod["metadata"]["uid"]
            if uid in before:
                fresh[uid] = before[uid]
            elif (since := pods.ready_since(pod)) is not None:
                fresh[uid] = since
        self.ready_at = fresh
        readings = []
        for pod in server_pods:
            ready_at = fresh.get(pod["metadata"]["uid"])
            reading = pods.reading(pod, ready_at)
            if reading is None:
                continue
            if ready_at is not None and ready_at - reading.created_at > longest_start_s:
                # `startupTimeout` doesn't allow such a start, so the pod was ready before, at an unknown time.
                reading = replace(reading, ready_at=None)
            readings.append(reading)
        return tuple(readings)


def _smallest(settings: Sequence[Serving | None]) -> Serving | None:
    known = [each for each in settings if each is not None]
    if len(known) < len(settings):
        return None
    sizes = [size for size, _ in known if size is not None]
    return Serving(min(sizes) if len(sizes) == len(known) else None, min(count for _, count in known))
