"""Objects of the stand-in for the API server (`plain_api`): versions, applies, watches, and pods of Deployments."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Where = tuple[str, str, str, str]
"""Group and version, plural, namespace and name."""
Event = tuple[int, str, Object]
"""Version, type and object of a watch's event."""

_LOGGED = 50_000
"""Number of events of each kind that a watch can begin with."""


class Store:
    """All objects, and the watches on them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Object]] = defaultdict(dict)
        self._applied: dict[tuple[Where, str, str], Object] = {}
        """Last body of each manager's apply to an object or a subresource."""
        self._versions = itertools.count(10)
        self.version = 9
        self._log: dict[tuple[str, str], deque[Event]] = defaultdict(lambda: deque(maxlen=_LOGGED))
        self._watches: dict[tuple[str, str], set[asyncio.Queue[Event]]] = defaultdict(set)

    def get(self, where: Where) -> Object | None:
        """Return an object; None if there is none."""
        return self.objects[where[:2]].get(where[2:])

    def put(self, where: Where, obj: Object, *, before: Object | None) -> Object:
        """Store an object, tell the watches, and let the stand-in for the controllers react."""
        self.version = next(self._versions)
        meta = obj["metadata"]
        meta |= {"name": where[3], "resourceVersion": str(self.version)}
        if where[2]:
            meta["namespace"] = where[2]
        meta.setdefault("uid", f"{hashlib.md5(repr(where).encode()).hexdigest()}-{self.version:03}")  # no secret
        meta.setdefault("creationTimestamp", _now())
        if before is None or before.get("spec") != obj.get("spec"):
            meta["generation"] = int(meta.get("generation", 0)) + 1
        self.objects[where[:2]][where[2:]] = obj
        self._tell(where, "ADDED" if before is None else "MODIFIED", obj)
        if where[1] == "deployments" and (before is None or before.get("spec") != obj.get("spec")):
            self._roll_out(where, obj)
        return self.objects[where[:2]][where[2:]]

    def delete(self, where: Where) -> bool:
        """Delete an object, and the pods of a Deployment. Return whether there was one."""
        obj = self.objects[where[:2]].pop(where[2:], None)
        if obj is None:
            return False
        self.version = next(self._versions)
        self._tell(where, "DELETED", obj)
        if where[1] == "deployments":
            for name in [n for s, n in self.objects["v1", "pods"] if s == where[2] and n.startswith(f"{where[3]}-0")]:
                self.delete(("v1", "pods", where[2], name))
        return True

    def apply(self, where: Where, body: Object, *, manager: str, sub: str) -> Object:
        """Apply a body as its manager: set its fields, and remove those that its last body had."""
        before = self.get(where)
        last = self._applied.get((where, manager, sub), {})
        self._applied[where, manager, sub] = body
        made = merged(copy.deepcopy(before) if before else {}, body, last)
        if where[1] == "deployments":
            made = merged(copy.deepcopy(_DEPLOYMENT), made, {})
        made["metadata"].pop("resourceVersion", None)
        self.own(made, body, manager=manager, sub=sub)
        if before is not None:
            made["metadata"]["uid"] = before["metadata"]["uid"]
            if _content(made) == _content(before):
                return before
        return self.put(where, made, before=before)

    def watch(self, kind: tuple[str, str], since: int) -> asyncio.Queue[Event]:
        """Return a queue of the events after this version."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._log[kind]:
            if event[0] > since:
                queue.put_nowait(event)
        self._watches[kind].add(queue)
        return queue

    def unwatch(self, kind: tuple[str, str], queue: asyncio.Queue[Event]) -> None:
        """End a watch."""
        self._watches[kind].discard(queue)

    def own(self, made: Object, body: Object, *, manager: str, sub: str) -> None:
        """Record in managedFields that a manager has set the fields of `body`."""
        fields = {f"f:{k}": v for k, v in _fields(body).items() if k not in {"apiVersion", "kind"}}
        entry = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": made.get("apiVersion"),
            "time": _now(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **({"subresource": sub} if sub else {}),
        }
        others = [
            e
            for e in made["metadata"].get("managedFields", ())
            if (e["manager"], e.get("subresource", "")) != (manager, sub)
        ]
        made["metadata"]["managedFields"] = [*others, entry]

    def _tell(self, where: Where, what: str, obj: Object) -> None:
        event = (self.version, what, obj)
        self._log[where[:2]].append(event)
        for queue in self._watches[where[:2]]:
            queue.put_nowait(event)

    def _roll_out(self, where: Where, deployment: Object) -> None:
        """Give a Deployment as many Ready pods as it has replicas, and the status of a finished rollout."""
        namespace, name = where[2:]
        wanted = int(deployment["spec"].get("replicas", 1))
        template = deployment["spec"]["template"]
        there = sorted(n for s, n in self.objects["v1", "pods"] if s == namespace and n.startswith(f"{name}-0"))
        for number in range(len(there), wanted):
            pod = f"{name}-0{hashlib.md5(name.encode()).hexdigest()[:8]}-{number:05}"  # no secret
            self.put(("v1", "pods", namespace, pod), _pod(pod, template), before=None)
        for pod in there[wanted:]:
            self.delete(("v1", "pods", namespace, pod))
        generation = deployment["metadata"]["generation"]
        condition = {"status": "True", "lastUpdateTime": _now(), "lastTransitionTime": _now()}
        status = {
            "observedGeneration": generation,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": wanted,
            "availableReplicas": wanted,
            "conditions": [
                condition | {"type": "Available", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."},
                condition | {"type": "Progressing", "reason": "NewReplicaSetAvailable", "message": f'ReplicaSet "{name}" has successfully progressed.'},
            ],
        }  # fmt: skip
        made = deployment | {"status": status, "metadata": dict(deployment["metadata"])}
        self.put(where, made, before=deployment)


def merged(old: Any, new: Any, last: Any) -> Any:  # any JSON values
    """Return `old` with the values of `new`, without what only `last` had. Lists are replaced as a whole."""
    if not (isinstance(old, dict) and isinstance(new, Mapping)):
        return copy.deepcopy(new)
    gone = {key for key in (last if isinstance(last, dict) else {}) if key not in new}
    kept = {key: value for key, value in old.items() if key not in gone and new.get(key, ...) is not None}
    for key, value in new.items():
        if value is not None:
            kept[key] = merged(old.get(key), value, last.get(key) if isinstance(last, dict) else None)
    return kept


def _content(obj: Object) -> Object:
    meta = {k: v for k, v in obj["metadata"].items() if k not in {"managedFields", "resourceVersion", "generation"}}
    return {**obj, "metadata": meta}


def _fields(value: Object) -> Object:
    return {
        key: {f"f:{k}": v for k, v in _fields(inner).items()} if isinstance(inner, dict) else {}
        for key, inner in value.items()
    }


_DEPLOYMENT: Object = {
    "spec": {
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
        "strategy": {"type": "RollingUpdate"},
        "template": {
            "metadata": {},
            "spec": {
                "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
            },
        },
    }
}
"""Defaults of the API server for a Deployment."""


def _pod(name: str, template: Object) -> Object:
    made = copy.deepcopy(template)
    running = {"ready": True, "started": True, "restartCount": 0, "lastState": {}, "imageID": f"sha256:{'0' * 64}"}

    def state(container: Object, now: Object) -> Object:
        return running | {"name": container["name"], "image": container["image"], "state": now}

    begun, ended = {"running": {"startedAt": _now()}}, {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}}  # fmt: skip
    init = [state(c, begun if c.get("restartPolicy") else ended) for c in made["spec"].get("initContainers", ())]
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _now()}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": _now(), **made.get("metadata", {})},
        "spec": made["spec"] | {"nodeName": "bench-1", "priority": 0},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.{hash(name) % 250}.{hash(name) // 250 % 250}",
            "startTime": _now(),
            "conditions": conditions,
            "initContainerStatuses": init,
            "containerStatuses": [state(c, begun) for c in made["spec"]["containers"]],
        },
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
