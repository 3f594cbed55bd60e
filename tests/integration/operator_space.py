"""A namespace for the operator's tests: short ways to create ModelDeployments, and the objects created for them.

Pods are KWOK's: they become Ready at once and run nothing, so there are no agents and no loaded models.
"""

import copy
from dataclasses import dataclass
from typing import Any

from e2e.cluster.api import Answer, Api
from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN, Kind
from tests.integration.waiting import until

Object = dict[str, Any]
FILES = "files"
_BASE: Object = {
    "model": {"source": {"configMap": {"name": FILES, "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}},
    "runtime": {"gpu": {"count": 0}},
}
_NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
REPLICA_SET = Kind("apps/v1", "ReplicaSet", "replicasets")
_KINDS = {k.kind: k for k in vars(kinds).values() if isinstance(k, Kind)}
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


def deployment(name: str = "m", **spec: Any) -> Object:
    """Return a ModelDeployment on CPU with its files in the ConfigMap `files`. `spec` overrides fields."""
    return {
        "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
        "kind": kinds.MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name},
        "spec": {**copy.deepcopy(_BASE), **spec},
    }


def batch_inference(name: str = "night", model: str = "m", **spec: Any) -> Object:
    """Return a BatchInference of a model. `spec` has more fields."""
    volume = {"claimName": "sets"}
    places = {
        "input": {"persistentVolumeClaim": {**volume, "path": "rows.npz"}},
        "output": {"persistentVolumeClaim": {**volume, "path": "out"}},
    }
    return {
        "apiVersion": kinds.BATCH_INFERENCE.api_version,
        "kind": kinds.BATCH_INFERENCE.kind,
        "metadata": {"name": name},
        "spec": {"modelDeployment": model, **places, **spec},
    }


def files(text: str = "max_batch_size: 8", name: str = FILES) -> Object:
    """Return the ConfigMap with the model's files."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.pbtxt": text}}


@dataclass(frozen=True)
class Space:
    """A namespace."""

    api: Api
    namespace: str

    def get(self, kind: Kind, name: str) -> Object | None:
        """Return the object, or None."""
        answer = self.api.call("GET", kind.path(self.namespace, name))
        return answer.body if answer.status == 200 else None

    def must(self, kind: Kind, name: str) -> Object:
        """Return the object, which must exist."""
        obj = self.get(kind, name)
        assert obj is not None, f"{kind.kind} {name} is not there"
        return obj

    def every(self, kind: Kind) -> list[Object]:
        """Return all objects of a kind."""
        answer = self.api.call("GET", kind.path(self.namespace))
        assert answer.body is not None, answer
        items: list[Object] = answer.body["items"]
        return items

    def children(self) -> dict[tuple[str, str], Object]:
        """Return every object with the operator's label, by kind and name."""
        return {
            (kind.kind, obj["metadata"]["name"]): obj
            for kind in CHILDREN
            for obj in self.every(kind)
            if (obj["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "halcyon"
        }

    def versions(self) -> dict[tuple[str, str], str]:
        """Return the resourceVersion of every object that the operator might write, including pods and ReplicaSets."""
        every = (*CHILDREN, kinds.MODEL_DEPLOYMENT, kinds.POD, REPLICA_SET, kinds.EVENT)
        return {
            (kind.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for kind in every
            for obj in self.every(kind)
        }

    def try_apply(self, obj: Object, *, manager: str = "user", dry: bool = False) -> Answer:
        """Apply an object server-side with strict validation, optionally as a dry run, and return the response."""
        kind = _KINDS[obj["kind"]]
        path = kind.path(self.namespace, obj["metadata"]["name"])
        query = f"?fieldManager={manager}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        return self.api.call("PATCH", path + query, obj, content_type=APPLY)

    def apply(self, *objects: Object, manager: str = "user") -> None:
        """Apply valid objects server-side."""
        for obj in objects:
            answer = self.try_apply(obj, manager=manager)
            assert answer.status in {200, 201}, answer

    def merge(self, kind: Kind, name: str, body: Object, *, subresource: str = "") -> Object:
        """Send a merge patch."""
        answer = self.api.call("PATCH", kind.path(self.namespace, name, subresource), body, content_type=MERGE)
        assert answer.status == 200, answer
        assert answer.body is not None
        return answer.body

    def delete(self, kind: Kind, name: str) -> None:
        """Delete an object with background propagation."""
        answer = self.api.call("DELETE", kind.path(self.namespace, name))
        assert answer.status in {200, 202}, answer

    def scale(self, count: int, name: str = "m") -> None:
        """Set the replicas with /scale."""
        self.merge(kinds.MODEL_DEPLOYMENT, name, {"spec": {"replicas": count}}, subresource="scale")

    def status(self, name: str = "m") -> Object:
        """Return the status of a ModelDeployment; empty if there is none."""
        model = self.get(kinds.MODEL_DEPLOYMENT, name) or {}
        status: Object = model.get("status") or {}
        return status

    def condition(self, type_name: str, name: str = "m") -> tuple[str, str, str]:
        """Return (status, reason, message) of a condition; empty texts if it doesn't exist."""
        condition: dict[str, str] = next(
            (c for c in self.status(name).get("conditions") or () if c["type"] == type_name), {}
        )
        return condition.get("status", ""), condition.get("reason", ""), condition.get("message", "")

    def wait_condition(
        self, type_name: str, status: str, reason: str | None = None, *, name: str = "m", limit_s: float = 15.0
    ) -> str:
        """Wait until the condition has this status and reason, and return its message."""
        return until(
            lambda: self.condition(type_name, name),
            lambda c: c[0] == status and reason in {None, c[1]},
            goal=f"{type_name}={status} {reason or ''} of {self.namespace}/{name}",
            limit_s=limit_s,
        )[2]

    def settled(self, name: str = "m") -> bool:
        """Return True if the current spec is served by the number of pods that it requests, all of its revision."""
        model = self.get(kinds.MODEL_DEPLOYMENT, name)
        status = (model or {}).get("status") or {}
        if model is None or status.get("observedGeneration") != model["metadata"]["generation"]:
            return False
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        revision = status.get("revision") or {}
        replicas = (self.get(kinds.DEPLOYMENT, f"{name}-a") or {"spec": {"replicas": -1}})["spec"]["replicas"]
        counts = status["pods"]
        return (
            conditions.get("Ready") == "True"
            and not {"Reconciling", "Stalled"} & conditions.keys()
            and revision.get("current") == revision.get("target")
            and counts == {**counts, "total": replicas, "ready": replicas, "updated": replicas, "unschedulable": 0}
        )

    def wait_settled(self, name: str = "m", *, limit_s: float = 20.0) -> None:
        """Wait until `settled` returns True."""
        until(
            lambda: self.settled(name),
            bool,
            goal=f"{name} is served",
            limit_s=limit_s,
            context=lambda: str(self.status(name)),
        )

    def serve(self, name: str = "m", **spec: Any) -> None:
        """Create a ModelDeployment with its ConfigMap, and wait until it is served."""
        self.apply(files(), deployment(name, **spec))
        self.wait_settled(name)

    def replicas(self, name: str = "m") -> int:
        """Return the replicas of the Deployment of model pods."""
        count: int = self.must(kinds.DEPLOYMENT, f"{name}-a")["spec"]["replicas"]
        return count

    def events(self, name: str = "m") -> list[Object]:
        """Return the Events about a ModelDeployment, without those about other objects with the same name."""
        about = {"kind": kinds.MODEL_DEPLOYMENT.kind, "name": name}
        return [e for e in self.every(kinds.EVENT) if about.items() <= (e.get("regarding") or {}).items()]

    def make(self) -> None:
        """Create the namespace."""
        self.api.create(_NAMESPACE.path(), {"metadata": {"name": self.namespace}})

    def end(self) -> None:
        """Delete the namespace, without waiting."""
        self.api.call("DELETE", _NAMESPACE.path("", self.namespace))
