"""Cluster client that can also create, change and delete objects of any kind."""

from __future__ import annotations

import json
from typing import Literal

from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError
from halcyon_cli.kube import client_messages
from halcyon_cli.kube.client import Cluster, Object

_PLAIN = "application/json"


class ObjectWriter(Cluster):
    """Cluster client that can also create, change and delete objects of any kind."""

    def create(self, kind: Kind, body: Object, *, verb: Literal["create", "update"] = "create") -> Object | None:
        """Create or replace an object in the client's namespace, and return it; None if another writer was first.

        Raises:
            ClusterError: the user may not write the object, the cluster has no such kind, or the API server rejects the
                object or is unreachable.
        """
        name = str(body["metadata"]["name"]) if verb == "update" else ""
        method = "PUT" if verb == "update" else "POST"
        status, content, reason = self._send(method, kind.path(self.namespace, name), None, body, content=_PLAIN)
        if status == 409:
            return None
        if status == 404 and verb == "create" and b"namespaces " not in content:
            raise ClusterError(client_messages.no_kind(self.host, kind.kind))
        if status >= 400:
            permission = f"{verb} on {kind.plural} in namespace {self.namespace}"
            raise self._rejection(status, content, reason, permission)
        stored: Object = json.loads(content)
        return stored

    def change(self, kind: Kind, name: str, body: Object) -> Object | None:
        """Apply a merge patch to an object in the client's namespace, and return it; None if it doesn't exist.

        Raises:
            ClusterError: for the same reasons as in `create`.
        """
        return self._json("PATCH", kind.path(self.namespace, name), body=body)

    def change_version(self, kind: Kind, name: str, body: Object, version: str) -> Object | None:
        """Apply a merge patch to an object if it has this resource version; None if another writer was first.

        Raises:
            ClusterError: for the same reasons as in `create`, or because the object doesn't exist.
        """
        changed = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
        status, content, reason = self._send("PATCH", kind.path(self.namespace, name), None, changed)
        if status == 409:
            return None
        if status >= 400:
            raise self._rejection(status, content, reason, f"patch on {kind.plural} in namespace {self.namespace}")
        stored: Object = json.loads(content)
        return stored

    def rejection(self, kind: Kind, name: str, body: Object) -> str:
        """Return the reason why the API server would reject a merge patch, by a dry run; empty if accepted or unknown.

        It is unknown if the user may not write the object, or if the object was changed at the same moment.

        Raises:
            ClusterError: the API server is unreachable.
        """
        path = kind.path(self.namespace, name)
        status, content, reason = self._send("PATCH", path, {"dryRun": "All"}, body)
        if status not in {400, 403, 422} or (status == 403 and b" cannot " in content):
            return ""
        try:
            return str(json.loads(content)["message"])
        except (ValueError, TypeError, KeyError):
            return reason

    def delete(self, kind: Kind, name: str, uid: str) -> None:
        """Delete the object with this UID if it still exists, and let Kubernetes delete the objects that it owns.

        Raises:
            ClusterError: for the same reasons as in `create`.
        """
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        status, content, reason = self._send("DELETE", kind.path(self.namespace, name), None, body, content=_PLAIN)
        if status >= 400 and status not in {404, 409}:
            permission = f"delete on {kind.plural} in namespace {self.namespace}"
            raise self._rejection(status, content, reason, permission)

    def may(self, verb: str, kind: Kind, subresource: str = "") -> bool:
        """Return whether the user may use a verb on a kind in the client's namespace.

        Raises:
            ClusterError: the API server doesn't answer the access review.
        """
        group = kind.api_version.rpartition("/")[0]
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": kind.plural}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes | ({"subresource": subresource} if subresource else {})},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, content, reason = self._send("POST", path, None, review, content=_PLAIN)
        if status >= 400:
            raise self._rejection(status, content, reason, "create on selfsubjectaccessreviews")
        return bool((json.loads(content).get("status") or {}).get("allowed"))
