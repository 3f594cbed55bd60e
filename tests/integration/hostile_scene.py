"""Environment of the hostile-input tests.

It consists of namespaces with the objects that a model needs, and functions that find all created objects.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from e2e.cluster import api
from e2e.cluster.api import Api
from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN
from tests.hostile import spec
from tests.integration.connection import Answer, Connection
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Object, Space, files
from tests.integration.waiting import until


@dataclass(frozen=True)
class HostileNamespace:
    """The namespace of one attempt, so that attempts don't wait for each other."""

    space: Space
    operator: Operator
    cluster: Cluster

    def send_text(self, text: str, *, content: str, validation: str = "Warn") -> Answer:
        """Create a ModelDeployment from a text, unchanged."""
        path = kinds.MODEL_DEPLOYMENT.path(self.space.namespace)
        with closing(Connection(self.cluster)) as connection:
            return connection.send_text(
                "POST", path, text.encode(), query={"fieldValidation": validation}, content=content
            )

    def serve(self, name: str, document: Object | None = None, **metadata: Any) -> None:
        """Create a model, and wait until it is served."""
        self.space.apply(model(name, document or spec(), **metadata))
        self.space.wait_settled(name)

    def end(self, *names: str) -> None:
        """Delete the models, and wait until all their objects are gone."""
        for name in names:
            self.space.api.call("DELETE", kinds.MODEL_DEPLOYMENT.path(self.space.namespace, name))
        until(
            lambda: [self.of(name) for name in names], lambda left: not any(left), goal=f"{names} are gone", limit_s=30
        )

    def of(self, name: str) -> list[Object]:
        """Return the children of a model."""
        return objects_of(name, everything(self.space))

    def other(self, name: str) -> Space:
        """Create an additional namespace."""
        return prepared(self.space.api, name)


@dataclass(frozen=True)
class Kept(Api):
    """Persistent connections, one per thread.

    Many threads wait here at once, and TLS handshakes for each request would use a whole core.
    """

    cluster: Cluster
    _own: threading.local = field(default_factory=threading.local)
    _all: list[Connection] = field(default_factory=list)

    def call(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> api.Answer:
        """Send one request."""
        if not hasattr(self._own, "connection"):
            self._own.connection = Connection(self.cluster)
            self._all.append(self._own.connection)
        place, _, query = path.partition("?")
        answer = self._own.connection.send(method, place, body, query=dict(parse_qsl(query)), content=content_type)
        return api.Answer(status=answer.status, body=answer.body)

    def close(self) -> None:
        """Close the connections, when no thread uses them any more."""
        for connection in self._all:
            connection.close()


def model(name: str, document: Object, **metadata: Any) -> Object:
    """Return a ModelDeployment."""
    return {
        "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
        "kind": kinds.MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, **metadata},
        "spec": document,
    }


def prepared(server: Api, name: str) -> Space:
    """Create a namespace in which models can be served, with its service account and the files of a model."""
    space = Space(server, name)
    space.make()
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: server.exists(path), bool, goal=f"namespace {name} has its service account")
    space.apply(files())
    return space


def everything(space: Space) -> list[Object]:
    """Return every object of the kinds that the operator creates, whoever created it."""
    return [{**obj, "kind": kind.kind} for kind in CHILDREN for obj in space.every(kind)]


def objects_of(name: str, objects: list[Object]) -> list[Object]:
    """Return the objects that belong to a model by name, label or owner. Any of these would be a successful attack."""
    return [obj for obj in objects if obj["metadata"]["name"].startswith(f"{name}-") or name in _names(obj["metadata"])]


def _names(meta: Object) -> set[str]:
    owners = {owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "ModelDeployment"}
    return {meta["name"], (meta.get("labels") or {}).get("serving.halcyon.dev/model-deployment", "")} | owners
