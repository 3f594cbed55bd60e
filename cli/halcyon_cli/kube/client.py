"""Synchronous cluster client for user commands, which reads, lists and changes objects. Its errors suggest a next step.

Objects are plain dicts, so unknown fields are kept. Out of scope: credentials and connections (`kubeconfig`,
`transport`), watching all objects of a kind (`object_caches`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from halcyon.api.types import GROUP, PLURAL
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon_cli.errors import ClusterError, InputError, NoAccessError
from halcyon_cli.kube import client_messages
from halcyon_cli.kube import kubeconfig as config
from halcyon_cli.kube.kubeconfig import KubeconfigError, UnknownContextError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, Timeout

    from halcyon_cli.kube.transport import Transport

Object = Mapping[str, Any]

TIMEOUT_S = 10.0
_CHUNK = 500
_SILENCE_S = 100.0
"""Time without received data after which a watch is considered lost, in seconds."""
_MERGE, _PLAIN, _APPLY = "application/merge-patch+json", "application/json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Target:
    """Cluster and namespace for a command. None means the value in the kubeconfig."""

    command: str
    """Name of the command, such as `explain`, for the example in the error message about an unknown name."""
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    timeout_s: float = TIMEOUT_S
    """Timeout of each request, in seconds."""


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SEGMENT = re.compile(r"[^\s/?#%]+")
"""Pattern of a name that can be a segment of a URL path without escaping."""


class NoSuchModelError(ClusterError):
    """The ModelDeployment doesn't exist."""


class Cluster:
    """Client for the cluster of a kubeconfig, or for the cluster in which this pod runs.

    Raises:
        ClusterError: the kubeconfig can't be used, or there is none.
    """

    def __init__(self, target: Target) -> None:
        """Read the configuration, without sending a request."""
        # Imported here because it takes a tenth of a second. `--help` and usage errors don't need it.
        from halcyon_cli.kube.transport import Transport  # noqa: PLC0415

        paths = str(target.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
        files = [Path(part).expanduser() for part in paths if part]
        kubeconfig = os.pathsep.join(map(str, files))
        exists = any(file.is_file() for file in files)
        if not exists and (target.kubeconfig or target.context or "KUBERNETES_SERVICE_HOST" not in os.environ):
            raise ClusterError(
                f"no cluster: kubeconfig {kubeconfig} doesn't exist; name one, for example --kubeconfig cluster.yaml"
            )
        try:
            access = config.read(files, target.context) if exists else config.in_cluster()
        except KubeconfigError as error:
            contexts = error.names if isinstance(error, UnknownContextError) and target.context else ()
            file = kubeconfig if exists else None
            raise ClusterError(client_messages.no_access_settings(file, error, contexts)) from None
        self.target = target
        self.namespace = _namespace(target.namespace or access.namespace)
        self.host = access.server
        self.transport: Transport = Transport(access)
        """Connections to the API server, and the credentials for them."""

    def in_namespace(self, namespace: str) -> Cluster:
        """Return a client for another namespace of the same cluster."""
        other = copy(self)
        other.namespace = _namespace(namespace)
        return other

    # Objects.

    def model(self, name: str) -> Object:
        """Return the ModelDeployment with this name.

        Raises:
            ClusterError: the ModelDeployment doesn't exist, the user may not read it, or the API server is unreachable.
        """
        model = self.find(kinds.MODEL_DEPLOYMENT, name)
        if model is None:
            raise NoSuchModelError(self._unknown_model_message(name))
        return model

    def models(self, *, all_namespaces: bool = False, selector: str = "") -> list[Object]:
        """Return the ModelDeployments that match the label selector, in the namespace or in all namespaces.

        Raises:
            ClusterError: for the same reasons as in `model`, or because the CRD isn't installed.
        """
        models = self.items(kinds.MODEL_DEPLOYMENT, selector=selector, all_namespaces=all_namespaces)
        if models is None:
            raise ClusterError(client_messages.no_crd(self.host))
        return models

    def patch(self, name: str, body: Object, query: Mapping[str, str] | None = None) -> Object:
        """Apply a merge patch to a ModelDeployment, and return the patched object.

        Raises:
            ClusterError: for the same reasons as in `model`, or because the user may not change the ModelDeployment.
        """
        patched = self._json("PATCH", kinds.MODEL_DEPLOYMENT.path(self.namespace, _segment(name)), query, body)
        if patched is None:
            raise NoSuchModelError(self._unknown_model_message(name))
        return patched

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> Object:
        """Set annotations of a ModelDeployment, or remove those whose value is None, and return the changed object.

        Their field manager is another than that of a patch, which would make a canary's old annotation look like a new one.
        """
        return self.patch(name, {"metadata": {"annotations": dict(annotations)}}, {"fieldManager": "halcyon-annotate"})

    def set_switch(self, name: str, key: str, value: str | None, metadata: Object) -> Object:
        """Set a key of a ConfigMap in the client's namespace, or remove it if the value is None.

        The ConfigMap also gets the labels and annotations in `metadata`. It is created if it doesn't exist.

        Raises:
            ClusterError: the user may not change the ConfigMap, or the API server is unreachable.
        """
        body = {"metadata": dict(metadata), "data": {key: value}}
        patched = self._json("PATCH", kinds.CONFIG_MAP.path(self.namespace, name), body=body)
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
        if patched is not None or value is None:
            return patched or config_map
        path = kinds.CONFIG_MAP.path(self.namespace)
        status, content, reason = self._send("POST", path, None, config_map | {"data": {key: value}}, content=_PLAIN)
        if status >= 400:
            permission = f"get, create and patch on configmaps in namespace {self.namespace}"
            raise self._rejection(status, content, reason, permission)
        stored: Object = json.loads(content)
        return stored

    def dry_run(self, method: Literal["POST", "PUT", "PATCH"], kind: Kind, name: str, body: Object) -> Object | None:
        """Return the object as the API server would store it after this write; None if the user may not write it.

        The method PATCH means a server-side apply, as in the operator.

        Raises:
            ClusterError: the API server would reject the write.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        query |= {"fieldManager": "halcyon", "force": "true"} if method == "PATCH" else {}
        path = kind.path(self.namespace, name)
        content = _APPLY if method == "PATCH" else _PLAIN
        status, response, reason = self._send(method, path, query, body, content=content)
        if status == 404 and method == "POST":
            raise ClusterError(client_messages.no_crd(self.host))
        if status == 403 and b" cannot " in response:  # denied by RBAC, not by an admission policy
            return None
        if status >= 400:
            raise self._rejection(status, response, reason, f"{method.lower()} on {kind.plural}")
        return dict(json.loads(response))

    def find(self, kind: Kind, name: str) -> Object | None:
        """Return an object, or None if it doesn't exist. A namespaced kind is read from the client's namespace.

        Raises:
            ClusterError: the user may not read it, or the API server is unreachable.
        """
        return self._json("GET", kind.path(self.namespace if kind.namespaced else "", _segment(name)))

    def items(
        self, kind: Kind, *, selector: str = "", all_namespaces: bool = False, fields: str = ""
    ) -> list[Object] | None:
        """Return all objects of a kind, read in chunks; None if the cluster has no such kind.

        Raises:
            ClusterError: for the same reasons as in `find`.
        """
        listed = self.listing(kind, selector=selector, all_namespaces=all_namespaces, fields=fields)
        return None if listed is None else listed[0]

    def listing(
        self, kind: Kind, *, selector: str = "", all_namespaces: bool = False, fields: str = ""
    ) -> tuple[list[Object], str] | None:
        """Return all objects of a kind as `items` does, and the resource version of the list."""
        query = {"limit": str(_CHUNK), "labelSelector": selector, "fieldSelector": fields}
        path = kind.path("" if all_namespaces or not kind.namespaced else self.namespace)
        items: list[Object] = []
        while True:
            page = self._json("GET", path, {key: value for key, value in query.items() if value})
            if page is None:
                return None
            page_items = [item for item in page.get("items") or () if isinstance(item, Mapping)]
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page_items]
            meta = page.get("metadata") or {}
            query["continue"] = meta.get("continue") or ""
            if not query["continue"]:
                return items, str(meta.get("resourceVersion") or "")

    def log(
        self, pod: str, container: str, *, lines: int, previous: bool = False, since_s: float | None = None
    ) -> str | None:
        """Return the last lines of a container's log, or None if it has no log.

        Raises:
            ClusterError: for the same reasons as in `find`.
        """
        query = {"container": container, "tailLines": str(lines)} | ({"previous": "true"} if previous else {})
        query |= {"sinceSeconds": f"{max(since_s, 1):.0f}"} if since_s else {}
        status, content, reason = self._send("GET", kinds.POD.path(self.namespace, pod, "log"), query)
        if status in {400, 404}:  # the container hasn't started, or has no previous run
            return None
        if status >= 400:
            raise self._rejection(status, content, reason, self._log_permission())
        return content.decode(errors="replace")

    def follow_log(self, pod: str, container: str, query: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines of a container's log as they are written, until the container stops.

        Raises:
            ClusterError: for the same reasons as in `find`, or because the connection was lost.
        """
        path = kinds.POD.path(self.namespace, pod, "log")
        # No timeout for reading: a quiet container writes nothing for hours.
        lines = self._lines(path, {"container": container, "follow": "true", **query}, self._log_permission(), None)
        yield from (line.decode(errors="replace") for line in lines)

    def watch(self, kind: Kind, *, since: str, selector: str = "", fields: str = "") -> Iterator[tuple[str, Object]]:
        """Yield the type and the object of each change after a resource version, until the API server ends the watch.

        Raises:
            ClusterError: as in `find`, or the resource version is too old, or the connection was lost.
        """
        query = {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true", "labelSelector": selector, "fieldSelector": fields}  # fmt: skip
        permission = f"get, list and watch on {kind.plural} in namespace {self.namespace}"
        for line in self._lines(kind.path(self.namespace if kind.namespaced else ""), query, permission, _SILENCE_S):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ClusterError(str(event["object"].get("message") or "the watch failed"))
            yield event["type"], event["object"]

    def _lines(self, path: str, query: Mapping[str, str], permission: str, silence_s: float | None) -> Iterator[bytes]:
        """Yield the lines of a response as they arrive. If no byte arrives for `silence_s`, an error is raised."""
        from urllib3 import Timeout  # noqa: PLC0415  # loaded by now
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        timeout = Timeout(connect=self.target.timeout_s, read=silence_s)
        response, partial = None, b""
        try:
            response = self._request("GET", path, {k: v for k, v in query.items() if v}, timeout=timeout)
            if response.status >= 400:
                raise self._rejection(response.status, response.read(), str(response.reason), permission)
            for chunk in response.stream(2**16):
                *lines, partial = (partial + chunk).split(b"\n")
                yield from lines
            if partial:
                yield partial
        except (HTTPError, OSError) as error:
            raise ClusterError(client_messages.unreachable(self.host, error)) from None
        finally:
            if response is not None:
                response.close()

    def _log_permission(self) -> str:
        return f"get pods/log in namespace {self.namespace}"

    def server_version(self) -> str:
        """Return the version of the API server, such as v1.35.0.

        Raises:
            ClusterError: the API server is unreachable or denies access.
        """
        return str((self._json("GET", "/version") or {}).get("gitVersion", "unknown"))

    # Requests.

    def _json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Object | None:
        status, content, reason = self._send(method, path, query, body)
        if status == 404:
            return None
        if status >= 400:
            verbs = "get and list" if body is None else "get and patch"
            resource = path.partition(f"namespaces/{self.namespace}/")[2].partition("/")[0] or path.rpartition("/")[2]
            group = f".{GROUP}" if resource == PLURAL else ""
            scope = f"in namespace {self.namespace}" if "/namespaces/" in path else "in the whole cluster"
            permission = f"{verbs} on {resource}{group} {scope}"
            raise self._rejection(status, content, reason, permission)
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, Mapping):
            raise ClusterError(f"{self.host} is not a Kubernetes API server; check it with kubectl cluster-info")
        return document

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content: str = _MERGE,
    ) -> tuple[int, bytes, str]:
        """Send a request, and return the response as (status, content, reason phrase)."""
        from urllib3 import Timeout  # noqa: PLC0415  # loaded by now
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            response = self._request(
                method, path, query, body, content=content, timeout=Timeout(total=self.target.timeout_s)
            )
            return response.status, response.read(), str(response.reason)
        except (HTTPError, OSError) as error:
            raise ClusterError(client_messages.unreachable(self.host, error)) from None

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content: str = _MERGE,
        timeout: Timeout,
    ) -> BaseHTTPResponse:
        """Send a request, and return the response. Its body isn't read yet."""
        headers = {"Accept": f"{_PLAIN}, */*", "Content-Type": _PLAIN if body is None else content}
        url = path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            return self.transport.send(method, url, headers=headers, body=data, timeout=timeout)
        except KubeconfigError as error:
            raise ClusterError(f"no access to the cluster at {self.host}: {error}") from None

    # Error messages.

    def _unknown_model_message(self, name: str) -> str:
        names: list[str] | None = None
        with contextlib.suppress(ClusterError):  # a role may allow to get a model, and not to list all
            models = self.items(kinds.MODEL_DEPLOYMENT)
            if models is None:
                return client_messages.no_crd(self.host)
            names = [str(item["metadata"]["name"]) for item in models]
        return client_messages.no_model(name, names, namespace=self.namespace, command=self.target.command)

    def _rejection(self, status: int, content: bytes, reason: str, permission: str) -> ClusterError:
        """Return the error for an error response of the API server."""
        text = client_messages.rejected(
            status, content, reason, host=self.host, namespace=self.namespace, permission=permission
        )
        return (NoAccessError if client_messages.lacks_access(status, content) else ClusterError)(text)


def _namespace(name: str) -> str:
    """Check the name of a namespace, and return it.

    Raises:
        InputError: the name is invalid.
    """
    if not _NAMESPACE.fullmatch(name):
        raise InputError(
            f"namespace is {name!r}; it must be up to 63 lower-case letters, digits and -, for example -n team-a"
        )
    return name


def _segment(name: str) -> str:
    """Check the name of an object, and return it.

    Raises:
        InputError: the name is invalid; in a URL it would address another object, or all of them.
    """
    if not _SEGMENT.fullmatch(name) or name in {".", ".."}:
        raise InputError(f"name is {name!r}; it must be the name of an object, for example digits")
    return name
