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
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import orjson
import yaml
from aiohttp import web

from benchmarks.hold.plain_store import Object, ObjectKey, Store, merged
from halcyon.api.types import API_VERSION, GROUP, VERSION
from halcyon.kube.auth.reviews import POD_NAME

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
            version = {"groupVersion": API_VERSION, "version": VERSION}
            served = {"name": GROUP, "versions": [version], "preferredVersion": version}
            return _json({"kind": "APIVersions", "versions": ["v1"], "groups": [served]})
        group = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        if group.startswith(_ABSENT):
            return _status(404, "NotFound")
        segments = parts[2:] if parts[0] == "api" else parts[3:]
        if not segments:
            return _json({"kind": "APIResourceList", "groupVersion": group, "resources": _resources(group)})
        namespace = ""
        if segments[0] == "namespaces" and len(segments) > 2:
            namespace, segments = segments[1], segments[2:]
        plural, name, sub = (*segments, "", "")[:3]
        if plural in {"tokenreviews", "subjectaccessreviews"}:
            return _json(_reviewed(plural, await request.json()), 201)
        if request.method == "GET" and not name:
            return await self._collection(request, (group, plural), namespace)
        if request.method == "POST":
            return await self._post(request, (group, plural, namespace, name), sub)
        if request.method == "PATCH":
            return await self._patch(request, (group, plural, namespace, name), sub)
        return self._get_or_delete(request, (group, plural, namespace, name))

    def _get_or_delete(self, request: web.Request, key: ObjectKey) -> web.StreamResponse:
        stored = self.store.get(key)
        if request.method == "DELETE":
            return (
                _json({"kind": "Status", "status": "Success"}) if self.store.delete(key) else _status(404, "NotFound")
            )
        return _status(404, "NotFound") if stored is None else _json(stored)

    async def _patch(self, request: web.Request, key: ObjectKey, sub: str) -> web.StreamResponse:
        current = self.store.get(key)
        text = await request.read()
        if request.content_type == "application/apply-patch+yaml":
            body = orjson.loads(text) if text[:1] == b"{" else yaml.safe_load(text)
            meta = body["metadata"]
            uid = meta.get("uid")
            if (current is not None and meta.get("resourceVersion") == "1") or (
                uid and (current is None or current["metadata"]["uid"] != uid)
            ):
                return _status(409, "Conflict")
            return _json(self.store.apply(key, body, manager=request.query["fieldManager"], sub=sub))
        if current is None:
            return _status(404, "NotFound")
        patch = orjson.loads(text)
        if sub == "scale":
            meta, replicas = current["metadata"], patch[-1]["value"]
            tested = {
                "/metadata/uid": meta["uid"],
                "/metadata/resourceVersion": meta["resourceVersion"],
                "/spec/replicas": current["spec"].get("replicas", 1) or None,
            }
            if any(tested[step["path"]] != step["value"] for step in patch if step["op"] == "test"):
                return _status(422, "Invalid")
            scaled = current | {"spec": current["spec"] | {"replicas": replicas}, "metadata": dict(current["metadata"])}
            stored = self.store.put(key, scaled, before=current)
            return _json({"kind": "Scale", "metadata": stored["metadata"], "spec": {"replicas": replicas}})
        version = patch.get("metadata", {}).get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        return _json(self.store.put(key, merged(copy.deepcopy(current), patch, {}), before=current))

    async def _post(self, request: web.Request, key: ObjectKey, sub: str) -> web.StreamResponse:
        body = await request.json()
        if sub == "token":
            identity = f"{key[2]}:{key[3]}:{body['spec']['boundObjectRef']['name']}"
            return _json({"status": {"token": base64.urlsafe_b64encode(identity.encode()).decode()}}, 201)
        if key[1] in _DISCARDED or "dryRun" in request.query:
            return _json(body, 201)
        object_key = (
            *key[:3],
            body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.store.version}",
        )
        if self.store.get(object_key) is not None:
            return _status(409, "AlreadyExists")
        self.store.own(body, body, manager=request.query.get("fieldManager", "bench"), sub="")
        return _json(self.store.put(object_key, body, before=None), 201)

    async def _collection(self, request: web.Request, kind: tuple[str, str], namespace: str) -> web.StreamResponse:
        selects = _selector(request.query.get("labelSelector", ""))
        if "watch" in request.query:
            return await self._watch(request, kind, namespace, selects)
        items = [
            obj
            for (space, _), obj in self.store.objects[kind].items()
            if (not namespace or space == namespace) and selects(obj)
        ]
        kind_name = _KIND_OF.get(kind[1], kind[1][:-1].capitalize())
        meta = {"resourceVersion": str(self.store.version)}
        return _json({"kind": f"{kind_name}List", "apiVersion": kind[0], "metadata": meta, "items": items})

    async def _watch(
        self, request: web.Request, kind: tuple[str, str], namespace: str, selects: Callable[[Object], bool]
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
                        _, event_type, obj = await queue.get()
                except TimeoutError:
                    meta = {"resourceVersion": str(self.store.version)}
                    event_type, obj = "BOOKMARK", {"kind": "", "apiVersion": kind[0], "metadata": meta}
                if event_type == "BOOKMARK" or (
                    (not namespace or obj["metadata"].get("namespace") == namespace) and selects(obj)
                ):
                    await response.write(orjson.dumps({"type": event_type, "object": obj}) + b"\n")
        except ConnectionError:
            return response  # the client has ended the watch
        finally:
            self.store.unwatch(kind, queue)
        return response


def _selector(text: str) -> Callable[[Object], bool]:
    """Return a function that is true for objects with the labels of a selector of `a=b` and `a in (b,c)`."""
    requirements: list[tuple[str, set[str]]] = []
    for part in text.replace(", ", ",").replace(",", "\n").splitlines() if "(" not in text else _split(text):
        if " in " in part:
            key, _, values = part.partition(" in ")
            requirements.append((key.strip(), set(values.strip(" ()").split(","))))
        elif "=" in part:
            key, _, value = part.partition("=")
            requirements.append((key, {value}))
        elif part:
            requirements.append((part, set()))

    def selects(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(key in labels and (not values or labels[key] in values) for key, values in requirements)

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
    if group != API_VERSION:
        return []
    verbs = ["get", "list", "watch", "patch", "create", "update", "delete"]
    return [
        {"name": plural, "singularName": "", "namespaced": True, "kind": _KIND_OF[plural], "verbs": verbs}
        for plural in ("modeldeployments", "batchinferences")
    ]


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def _status(code: int, reason: str) -> web.Response:
    return _json({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}, code)


if __name__ == "__main__":
    web.run_app(PlainApi().app(), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
