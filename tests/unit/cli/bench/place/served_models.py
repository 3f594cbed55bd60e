"""A served ModelDeployment as the API server has it."""

from __future__ import annotations

from typing import Any


def served(
    name: str = "digits", *, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a served model, with these fields of its spec and its status in place of the usual ones."""
    return {
        "apiVersion": "serving.halcyon.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "team", "uid": "u-1", "labels": {"app.kubernetes.io/part-of": "shop"}},
        "spec": {
            "replicas": 3,
            "model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}},
            "runtime": {"gpu": {"count": 1}, "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}},
            "scaling": {"minReplicas": 1, "maxReplicas": 8, "targets": {"latency": "300ms"}},
            "traffic": {
                "queueLimit": 50, "drainTimeout": "30m", "apiKeys": {"secretName": "keys"}, "tls": {"secretName": "cert"},
                "service": {"type": "LoadBalancer"}, "overload": {"mode": "Wait"},
            },
            "rollout": {"strategy": "Canary"},
        } | (spec or {}),
        "status": {
            "model": {"name": name},
            "revision": {"current": f"{name}-abc", "target": f"{name}-abc"},
            "conditions": [{"type": "Accepted", "status": "True"}, {"type": "ModelLoaded", "status": "True"}],
        } | (status or {}),
    }  # fmt: skip
