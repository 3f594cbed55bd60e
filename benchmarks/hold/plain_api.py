"""A stand-in for the API server, as a process of its own: objects in memory, over plain HTTP, without etcd or controllers.

    python -m benchmarks.hold.plain_api PORT

It has what the operator and the load generator use: lists, watches, server-side apply by one manager per field, merge
patches, /scale, TokenReviews that accept every token made here, and Deployments whose pods are Ready at once. Objects
carry managedFields and the usual defaults, so that they have the size of real ones. `benchmarks.hold.memory` uses it.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import itertools
import sys
from collections import defaultdict, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import orjson
import yaml
from aiohttp import web

from halcyon.kube.auth.reviews import POD_NAME

Object = dict[str, Any]
Where = tuple[str, str, str, str]
"""Group and version, plural, namespace and name."""

_LOGGED = 50_000
_BOOKMARK_S = 30.0
_DISCARDED = frozenset({"events"})
_KIND_OF = {
    "modeldeployments": "ModelDeployment",
    "batchinferences": "BatchInference",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "networkpolicies": "NetworkPolicy",
    "horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "controllerrevisions": "ControllerRevision",
    "serviceaccounts": "ServiceAccount",
    "rolebindings": "RoleBinding",
    "configmaps": "ConfigMap",
    "resourcequotas": "ResourceQuota",
}
_ABSENT = ("gateway.networking.k8s.io", "apiregistration.k8s.io")
"""Groups that this API server doesn't serve."""


class Store:
    """All objects, and the watches on them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Object]] = defaultdict(dict)
        self._applied: dict[tuple[Where, str, str], Object] = {}
        """Last body of each manager's apply to an object or a subresource."""
        self._versions = itertools.count(10)
        self.version = 9
        self._log: dict[tuple[str, str], deque[tuple[int, str, Object]]] = defaultdict(lambda: deque(maxlen=_LOGGED))
        self._watches: dict[tuple[str, str], set[asyncio.Queue[tuple[int, str, Object]]]] = defaultdict(set)

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
        meta.setdefault("uid", f"{hashlib.md5(repr(where).encode()).hexdigest()}-{self.version:03}")  # noqa: S324  # no secret
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
        made = _merged(copy.deepcopy(before) if before else {}, body, last)
        if where[1] == "deployments":
            made = _merged(copy.deepcopy(_DEPLOYMENT), made, {})
        made["metadata"].pop("resourceVersion", None)
        self._own(made, body, manager=manager, sub=sub)
        if before is not None:
            made["metadata"]["uid"] = before["metadata"]["uid"]
            if _content(made) == _content(before):
                return before
        return self.put(where, made, before=before)

    def watch(self, kind: tuple[str, str], since: int) -> asyncio.Queue[tuple[int, str, Object]]:
        """Return a queue of the events after this version."""
        queue: asyncio.Queue[tuple[int, str, Object]] = asyncio.Queue()
        for event in self._log[kind]:
            if event[0] > since:
                queue.put_nowait(event)
        self._watches[kind].add(queue)
        return queue

    def unwatch(self, kind: tuple[str, str], queue: asyncio.Queue[tuple[int, str, Object]]) -> None:
        """End a watch."""
        self._watches[kind].discard(queue)

    def _own(self, made: Object, body: Object, *, manager: str, sub: str) -> None:
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
            pod = f"{name}-0{hashlib.md5(name.encode()).hexdigest()[:8]}-{number:05}"  # noqa: S324  # no secret
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


class PlainApi:
    """HTTP handlers of the stand-in."""

    def __init__(self) -> None:
        self.store = Store()
        self.requests = 0

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.requests += 1
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if parts in (["api"], ["apis"]):
            return _json({"kind": "APIVersions", "versions": ["v1"], "groups": []})
        group = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        if group.startswith(_ABSENT):
            return _status(404, "NotFound")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if not rest:
            return _json({"kind": "APIResourceList", "groupVersion": group, "resources": _resources(group)})
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "")[:3]
        if plural in {"tokenreviews", "subjectaccessreviews"}:
            return _json(_reviewed(plural, await request.json()), 201)
        if request.method == "GET" and not name:
            return await self._collection(request, (group, plural), namespace)
        return await self._one(request, (group, plural, namespace, name), sub)

    async def _one(self, request: web.Request, where: Where, sub: str) -> web.StreamResponse:
        if request.method == "POST":
            return await self._post(request, where, sub)
        found = self.store.get(where)
        if request.method == "DELETE":
            return _json({"kind": "Status", "status": "Success"}) if self.store.delete(where) else _status(404, "NotFound")
        if request.method == "GET":
            return _status(404, "NotFound") if found is None else _json(found)
        text = await request.read()
        if request.content_type == "application/apply-patch+yaml":
            body = orjson.loads(text) if text[:1] == b"{" else yaml.safe_load(text)
            meta = body["metadata"]
            uid = meta.get("uid")
            if (found is not None and meta.get("resourceVersion") == "1") or (
                uid and (found is None or found["metadata"]["uid"] != uid)
            ):
                return _status(409, "Conflict")
            return _json(self.store.apply(where, body, manager=request.query["fieldManager"], sub=sub))
        if found is None:
            return _status(404, "NotFound")
        patch = orjson.loads(text)
        if sub == "scale":
            replicas = patch[-1]["value"]
            if patch[1]["value"] != (found["spec"].get("replicas", 1) or None):
                return _status(422, "Invalid")
            made = found | {"spec": found["spec"] | {"replicas": replicas}, "metadata": dict(found["metadata"])}
            stored = self.store.put(where, made, before=found)
            return _json({"kind": "Scale", "metadata": stored["metadata"], "spec": {"replicas": replicas}})
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        return _json(self.store.put(where, _merged(copy.deepcopy(found), patch, {}), before=found))

    async def _post(self, request: web.Request, where: Where, sub: str) -> web.StreamResponse:
        body = await request.json()
        if sub == "token":
            who = f"{where[2]}:{where[3]}:{body['spec']['boundObjectRef']['name']}"
            return _json({"status": {"token": base64.urlsafe_b64encode(who.encode()).decode()}}, 201)
        if where[1] in _DISCARDED or "dryRun" in request.query:
            return _json(body, 201)
        named = (*where[:3], body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.store.version}")
        if self.store.get(named) is not None:
            return _status(409, "AlreadyExists")
        self.store._own(body, body, manager=request.query.get("fieldManager", "bench"), sub="")
        return _json(self.store.put(named, body, before=None), 201)

    async def _collection(self, request: web.Request, kind: tuple[str, str], namespace: str) -> web.StreamResponse:
        selects = _selector(request.query.get("labelSelector", ""))
        if "watch" in request.query:
            return await self._watch(request, kind, namespace, selects)
        items = [
            obj
            for (space, _), obj in self.store.objects[kind].items()
            if (not namespace or space == namespace) and selects(obj)
        ]
        named = _KIND_OF.get(kind[1], kind[1][:-1].capitalize())
        meta = {"resourceVersion": str(self.store.version)}
        return _json({"kind": f"{named}List", "apiVersion": kind[0], "metadata": meta, "items": items})

    async def _watch(
        self, request: web.Request, kind: tuple[str, str], namespace: str, selects: Any
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue = self.store.watch(kind, int(request.query.get("resourceVersion") or 0))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + float(request.query.get("timeoutSeconds", 290))
        try:
            while loop.time() < end_s:
                try:
                    async with asyncio.timeout(_BOOKMARK_S):
                        _, what, obj = await queue.get()
                except TimeoutError:
                    meta = {"resourceVersion": str(self.store.version)}
                    what, obj = "BOOKMARK", {"kind": "", "apiVersion": kind[0], "metadata": meta}
                if what == "BOOKMARK" or (
                    (not namespace or obj["metadata"].get("namespace") == namespace) and selects(obj)
                ):
                    await response.write(orjson.dumps({"type": what, "object": obj}) + b"\n")
        except ConnectionError:
            return response  # the client has ended the watch
        finally:
            self.store.unwatch(kind, queue)
        return response


def _merged(old: Any, new: Any, last: Any) -> Any:  # any JSON values
    """Return `old` with the values of `new`, without what only `last` had. Lists are replaced as a whole."""
    if not (isinstance(old, dict) and isinstance(new, Mapping)):
        return copy.deepcopy(new)
    gone = {key for key in (last if isinstance(last, dict) else {}) if key not in new}
    kept = {key: value for key, value in old.items() if key not in gone and new.get(key, ...) is not None}
    for key, value in new.items():
        if value is not None:
            kept[key] = _merged(old.get(key), value, last.get(key) if isinstance(last, dict) else None)
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


def _selector(text: str) -> Any:
    """Return a function that tells whether an object has the labels of a selector of `a=b` and `a in (b,c)`."""
    wanted: list[tuple[str, set[str]]] = []
    for part in text.replace(", ", ",").replace(",", "\n").splitlines() if "(" not in text else _split(text):
        if " in " in part:
            key, _, values = part.partition(" in ")
            wanted.append((key.strip(), set(values.strip(" ()").split(","))))
        elif "=" in part:
            key, _, value = part.partition("=")
            wanted.append((key, {value}))
        elif part:
            wanted.append((part, set()))

    def selects(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(key in labels and (not values or labels[key] in values) for key, values in wanted)

    return selects


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _reviewed(plural: str, review: Object) -> Object:
    if plural == "subjectaccessreviews":
        return review | {"status": {"allowed": True}}
    namespace, account, pod = base64.urlsafe_b64decode(review["spec"]["token"]).decode().split(":")
    user = {"username": f"system:serviceaccount:{namespace}:{account}", "groups": [], "extra": {POD_NAME: [pod]}}
    audiences = review["spec"].get("audiences", [])
    return review | {"status": {"authenticated": True, "user": user, "audiences": audiences}}


def _resources(group: str) -> list[Object]:
    if not group.startswith("serving.halcyon.dev"):
        return []
    verbs = ["get", "list", "watch", "patch", "create", "update", "delete"]
    return [
        {"name": plural, "singularName": "", "namespaced": True, "kind": _KIND_OF[plural], "verbs": verbs}
        for plural in ("modeldeployments", "batchinferences")
    ]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def _status(code: int, reason: str) -> web.Response:
    return _json({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}, code)


if __name__ == "__main__":
    web.run_app(PlainApi().app(), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
