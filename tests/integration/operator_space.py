"""One namespace as the operator's tests see it: ModelDeployments in few words, and the objects made for them.

Pods here are KWOK's: they become Ready at once and run nothing, so no agent speaks and no model is loaded.
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
    """A ModelDeployment of ConfigMap `files`, on CPU; `spec` is laid over that."""
    return {
        "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
        "kind": kinds.MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name},
        "spec": {**copy.deepcopy(_BASE), **spec},
    }


def files(text: str = "max_batch_size: 8", name: str = FILES) -> Object:
    """The ConfigMap with the model."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.pbtxt": text}}


@dataclass(frozen=True)
class Space:
    """A namespace."""

    api: Api
    namespace: str

    def get(self, kind: Kind, name: str) -> Object | None:
        """The object, or None."""
        answer = self.api.call("GET", kind.path(self.namespace, name))
        return answer.body if answer.status == 200 else None

    def must(self, kind: Kind, name: str) -> Object:
        """The object, which is there."""
        found = self.get(kind, name)
        assert found is not None, f"{kind.kind} {name} is not there"
        return found

    def every(self, kind: Kind) -> list[Object]:
        """All objects of a kind."""
        answer = self.api.call("GET", kind.path(self.namespace))
        assert answer.body is not None, answer
        items: list[Object] = answer.body["items"]
        return items

    def children(self) -> dict[tuple[str, str], Object]:
        """Every object that bears the operator's label, by kind and name."""
        return {
            (kind.kind, obj["metadata"]["name"]): obj
            for kind in CHILDREN
            for obj in self.every(kind)
            if (obj["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "halcyon"
        }

    def versions(self) -> dict[tuple[str, str], str]:
        """resourceVersion of every object that the operator might write, pods and ReplicaSets too."""
        every = (*CHILDREN, kinds.MODEL_DEPLOYMENT, kinds.POD, REPLICA_SET, kinds.EVENT)
        return {
            (kind.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for kind in every
            for obj in self.every(kind)
        }

    def try_apply(self, obj: Object, *, manager: str = "user", dry: bool = False) -> Answer:
        """Server-side apply under strict validation, for real or not; whatever the API server answers."""
        kind = _KINDS[obj["kind"]]
        path = kind.path(self.namespace, obj["metadata"]["name"])
        query = f"?fieldManager={manager}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        return self.api.call("PATCH", path + query, obj, content_type=APPLY)

    def apply(self, *objects: Object, manager: str = "user") -> None:
        """Server-side apply of objects that are right."""
        for obj in objects:
            answer = self.try_apply(obj, manager=manager)
            assert answer.status in {200, 201}, answer

    def merge(self, kind: Kind, name: str, body: Object, *, subresource: str = "") -> Object:
        """Merge patch."""
        answer = self.api.call("PATCH", kind.path(self.namespace, name, subresource), body, content_type=MERGE)
        assert answer.status == 200, answer
        assert answer.body is not None
        return answer.body

    def delete(self, kind: Kind, name: str) -> None:
        """Delete, in the background."""
        answer = self.api.call("DELETE", kind.path(self.namespace, name))
        assert answer.status in {200, 202}, answer

    def scale(self, count: int, name: str = "m") -> None:
        """Write /scale."""
        self.merge(kinds.MODEL_DEPLOYMENT, name, {"spec": {"replicas": count}}, subresource="scale")

    def status(self, name: str = "m") -> Object:
        """Status of a ModelDeployment; empty where none was written."""
        found = self.get(kinds.MODEL_DEPLOYMENT, name) or {}
        status: Object = found.get("status") or {}
        return status

    def condition(self, wanted: str, name: str = "m") -> tuple[str, str, str]:
        """(status, reason, message) of a condition; empty texts where it isn't there."""
        found: dict[str, str] = next((c for c in self.status(name).get("conditions") or () if c["type"] == wanted), {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def wait_condition(
        self, wanted: str, status: str, reason: str | None = None, *, name: str = "m", limit_s: float = 15.0
    ) -> str:
        """Until the condition is so; its message."""
        return until(
            lambda: self.condition(wanted, name),
            lambda c: c[0] == status and reason in {None, c[1]},
            what=f"{wanted}={status} {reason or ''} of {self.namespace}/{name}",
            limit_s=limit_s,
        )[2]

    def settled(self, name: str = "m") -> bool:
        """Whether the spec as it stands is served by as many pods as it asks for, all of its revision."""
        found = self.get(kinds.MODEL_DEPLOYMENT, name)
        status = (found or {}).get("status") or {}
        if found is None or status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        revision = status.get("revision") or {}
        wanted = (self.get(kinds.DEPLOYMENT, f"{name}-a") or {"spec": {"replicas": -1}})["spec"]["replicas"]
        counts = status["pods"]
        return (
            conditions.get("Ready") == "True"
            and not {"Reconciling", "Stalled"} & conditions.keys()
            and revision.get("current") == revision.get("target")
            and counts == {**counts, "total": wanted, "ready": wanted, "updated": wanted, "unschedulable": 0}
        )

    def wait_settled(self, name: str = "m", *, limit_s: float = 20.0) -> None:
        """Until `settled`."""
        until(
            lambda: self.settled(name),
            bool,
            what=f"{name} is served",
            limit_s=limit_s,
            context=lambda: str(self.status(name)),
        )

    def serve(self, name: str = "m", **spec: Any) -> None:
        """Have a ModelDeployment served: its ConfigMap, itself, and the wait for it."""
        self.apply(files(), deployment(name, **spec))
        self.wait_settled(name)

    def replicas(self, name: str = "m") -> int:
        """Count of the server Deployment."""
        count: int = self.must(kinds.DEPLOYMENT, f"{name}-a")["spec"]["replicas"]
        return count

    def events(self, name: str = "m") -> list[Object]:
        """Events about a ModelDeployment; what Kubernetes says of another object of that name is none of them."""
        about = {"kind": kinds.MODEL_DEPLOYMENT.kind, "name": name}
        return [e for e in self.every(kinds.EVENT) if about.items() <= (e.get("regarding") or {}).items()]

    def make(self) -> None:
        """Make the namespace."""
        self.api.create(_NAMESPACE.path(), {"metadata": {"name": self.namespace}})

    def end(self) -> None:
        """Delete the namespace; that goes on behind."""
        self.api.call("DELETE", _NAMESPACE.path("", self.namespace))
