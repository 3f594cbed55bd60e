"""Objects of the stand-in for the API server (`plain_api`): versions, applies, watches, and pods of Deployments."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import itertools
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
ObjectKey = tuple[str, str, str, str]
"""Group and version, plural, namespace and name."""
Event = tuple[int, str, Object]
"""Version, type and object of a watch's event."""

_LOGGED = 50_000
"""Number of events of each kind that a watch can begin with."""


class Store:
    """All objects, and the watches on them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Object]] = defaultdict(dict)
        self._applied: dict[tuple[ObjectKey, str, str], Object] = {}
        """Last body of each manager's apply to an object or a subresource."""
        self._versions = itertools.count(10)
        self.version = 9
        self._log: dict[tuple[str, str], deque[Event]] = defaultdict(lambda: deque(maxlen=_LOGGED))
        self._watches: dict[tuple[str, str], set[asyncio.Queue[Event]]] = defaultdict(set)

    def get(self, key: ObjectKey) -> Object | None:
        """Return an object; None if there is none."""
        return self.objects[key[:2]].get(key[2:])

    def put(self, key: ObjectKey, obj: Object, *, before: Object | None) -> Object:
        """Store an object, send it to the watches, and let the stand-in for the controllers react."""
        self.version = next(self._versions)
        if texts := obj.pop("stringData", None):  # a Secret's texts, which its data has in base64
            obj["data"] = {
                **obj.get("data", {}),
                **{k: base64.b64encode(v.encode()).decode() for k, v in texts.items()},
            }
        meta = obj["metadata"]
        meta |= {"name": key[3], "resourceVersion": str(self.version)}
        if key[2]:
            meta["namespace"] = key[2]
        meta.setdefault("uid", f"{hashlib.md5(repr(key).encode()).hexdigest()}-{self.version:03}")  # no secret
        meta.setdefault("creationTimestamp", _now())
        if before is None or before.get("spec") != obj.get("spec"):
            meta["generation"] = int(meta.get("generation", 0)) + 1
        self.objects[key[:2]][key[2:]] = obj
        self._notify(key, "ADDED" if before is None else "MODIFIED", obj)
        if key[1] == "deployments" and (before is None or before.get("spec") != obj.get("spec")):
            self._roll_out(key, obj)
        return self.objects[key[:2]][key[2:]]

    def delete(self, key: ObjectKey) -> bool:
        """Delete an object, and the pods of a Deployment. Return whether there was one."""
        obj = self.objects[key[:2]].pop(key[2:], None)
        if obj is None:
            return False
        self.version = next(self._versions)
        self._notify(key, "DELETED", obj)
        if key[1] == "deployments":
            for name in [n for s, n in self.objects["v1", "pods"] if s == key[2] and n.startswith(f"{key[3]}-0")]:
                self.delete(("v1", "pods", key[2], name))
        return True

    def apply(self, key: ObjectKey, body: Object, *, manager: str, sub: str) -> Object:
        """Apply a body as its manager: set its fields, and remove those that its last body had."""
        before = self.get(key)
        last = self._applied.get((key, manager, sub), {})
        self._applied[key, manager, sub] = body
        obj = merged(copy.deepcopy(before) if before else {}, body, last)
        if key[1] == "deployments":
            obj = merged(copy.deepcopy(_DEPLOYMENT), obj, {})
        obj["metadata"].pop("resourceVersion", None)
        self.own(obj, body, manager=manager, sub=sub)
        if before is not None:
            obj["metadata"]["uid"] = before["metadata"]["uid"]
            if _content(obj) == _content(before):
                return before
        return self.put(key, obj, before=before)

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

    def own(self, obj: Object, body: Object, *, manager: str, sub: str) -> None:
        """Record in managedFields that a manager has set the fields of `body`."""
        fields = {f"f:{k}": v for k, v in _fields(body).items() if k not in {"apiVersion", "kind"}}
        entry = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": obj.get("apiVersion"),
            "time": _now(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            **({"subresource": sub} if sub else {}),
        }
        others = [
            e
            for e in obj["metadata"].get("managedFields", ())
            if (e["manager"], e.get("subresource", "")) != (manager, sub)
        ]
        obj["metadata"]["managedFields"] = [*others, entry]

    def _notify(self, key: ObjectKey, event_type: str, obj: Object) -> None:
        event = (self.version, event_type, obj)
        self._log[key[:2]].append(event)
        for queue in self._watches[key[:2]]:
            queue.put_nowait(event)

    def _roll_out(self, key: ObjectKey, deployment: Object) -> None:
        """Give a Deployment as many Ready pods as it has replicas, and the status of a finished rollout."""
        namespace, name = key[2:]
        replicas = int(deployment["spec"].get("replicas", 1))
        template = deployment["spec"]["template"]
        pods = sorted(n for s, n in self.objects["v1", "pods"] if s == namespace and n.startswith(f"{name}-0"))
        for number in range(len(pods), replicas):
            pod = f"{name}-0{hashlib.md5(name.encode()).hexdigest()[:8]}-{number:05}"  # no secret
            self.put(("v1", "pods", namespace, pod), _pod(pod, template), before=None)
        for pod in pods[replicas:]:
            self.delete(("v1", "pods", namespace, pod))
        generation = deployment["metadata"]["generation"]
        condition = {"status": "True", "lastUpdateTime": _now(), "lastTransitionTime": _now()}
        status = {
            "observedGeneration": generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [
                condition | {"type": "Available", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."},
                condition | {"type": "Progressing", "reason": "NewReplicaSetAvailable", "message": f'ReplicaSet "{name}" has successfully progressed.'},
            ],
        }  # fmt: skip
        updated = deployment | {"status": status, "metadata": dict(deployment["metadata"])}
        self.put(key, updated, before=deployment)


def merged(old: Any, new: Any, last: Any) -> Any:  # any JSON values
    """Return `old` with the values of `new`, without the keys that only `last` had. Lists are replaced, not merged."""
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    old = old if isinstance(old, dict) else {}
    removed = {key for key in (last if isinstance(last, dict) else {}) if key not in new}
    fields = {key: value for key, value in old.items() if key not in removed and new.get(key, ...) is not None}
    for key, value in new.items():
        if value is not None:
            fields[key] = merged(old.get(key), value, last.get(key) if isinstance(last, dict) else None)
    return fields


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
    body = copy.deepcopy(template)
    running = {"ready": True, "started": True, "restartCount": 0, "lastState": {}, "imageID": f"sha256:{'0' * 64}"}

    def state(container: Object, now: Object) -> Object:
        return running | {"name": container["name"], "image": container["image"], "state": now}

    running_state, ended_state = {"running": {"startedAt": _now()}}, {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}}  # fmt: skip
    init = [
        state(c, running_state if c.get("restartPolicy") else ended_state)
        for c in body["spec"].get("initContainers", ())
    ]
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _now()}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": _now(), **body.get("metadata", {})},
        "spec": body["spec"] | {"nodeName": "bench-1", "priority": 0},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.{hash(name) % 250}.{hash(name) // 250 % 250}",
            "startTime": _now(),
            "conditions": conditions,
            "initContainerStatuses": init,
            "containerStatuses": [state(c, running_state) for c in body["spec"]["containers"]],
        },
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
