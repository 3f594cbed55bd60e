"""Models and pods on which agents may report, from the caches."""

from __future__ import annotations

from dataclasses import dataclass

from halcyon.control.objects import pods
from halcyon.control.state.cluster_state import ClusterState
from halcyon.kube.kinds import Key
from halcyon.render import names


@dataclass(frozen=True)
class ReportedModels:
    """Lookup of existing models and pods in the caches. Implements the collector's `ExistingModels`."""

    caches: ClusterState

    @property
    def synced(self) -> bool:
        """Whether the caches of models and pods have been filled."""
        return self.caches.resources.synced.is_set() and self.caches.pods.synced.is_set()

    def has_model(self, namespace: str, name: str) -> bool:
        """Return whether the cache has the ModelDeployment."""
        return self.caches.resources.get(Key(namespace, name)) is not None

    def has_pod(self, namespace: str, name: str, pod: str) -> bool:
        """Return whether the model has a server pod with this name, including one that is being deleted."""
        server = self.caches.pods.get(Key(namespace, pod))
        if server is None or not pods.is_server(server):
            return False
        return bool(server["metadata"]["labels"].get(names.OWNER_LABEL) == name)
