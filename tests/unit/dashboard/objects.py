"""Short builders for ModelDeployments and pods as in the caches."""

from typing import Any

from halcyon.dashboard.ports import Name

Object = dict[str, Any]
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "1 of 1 servers are ready"}


def name(number: int = 0, namespace: str = "team-a") -> Name:
    return Name(namespace, f"model-{number:04}")


def model(
    number: int = 0,
    namespace: str = "team-a",
    *,
    version: str = "1",
    conditions: tuple[Object, ...] = (READY,),
    spec: Object | None = None,
    status: Object | None = None,
) -> Object:
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"model-{number:04}",
            "uid": f"uid-{number}",
            "resourceVersion": version,
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicas": 1, **(spec or {})},
        "status": {
            "conditions": list(conditions),
            "replicas": 1,
            "readyReplicas": 1,
            "pods": {"total": 1, "ready": 1, "updated": 1, "unschedulable": 0},
            "summary": {"state": "Ready", "ready": "1/1"},
            **(status or {}),
        },
    }


def condition(kind: str, status: str, reason: str = "Because", message: str = "so it is") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def pod(
    *, conditions: tuple[Object, ...] = (), fetch: Object | None = None, server: Object | None = None, **more: Any
) -> Object:
    """Return a model pod created at 12:00:00. `fetch` and `server` are states of its containers."""
    return {
        "metadata": {
            "namespace": "team-a",
            "name": "model-0000-a-1",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {"serving.halcyon.dev/revision": "abc", "serving.halcyon.dev/slot": "a"},
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "deletionTimestamp": more.get("going"),
        },
        "spec": {"priority": 0},
        "status": {
            "phase": more.get("phase", "Pending"),
            "podIP": None,
            "conditions": list(conditions),
            "initContainerStatuses": [] if fetch is None else [container("fetch", fetch)],
            "containerStatuses": []
            if server is None
            else [container("server", server, restarts=more.get("restarts", 0), last=more.get("last"))],
        },
    }


def container(name: str, state: Object, *, restarts: int = 0, last: Object | None = None) -> Object:
    return {"name": name, "image": "i", "restartCount": restarts, "state": state, "lastState": last or {}}
