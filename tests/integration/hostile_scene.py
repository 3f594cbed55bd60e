"""Where the hostile-input table is tried: namespaces with what a model needs, and looks that find whatever was made there."""

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
    """Where a deed is done: a namespace of its own, so that none waits for another."""

    space: Space
    operator: Operator
    cluster: Cluster

    def send_text(self, text: str, *, content: str, validation: str = "Warn") -> Answer:
        """Have the API server make a ModelDeployment of a text as it is."""
        path = kinds.MODEL_DEPLOYMENT.path(self.space.namespace)
        with closing(Connection(self.cluster)) as connection:
            return connection.send_text(
                "POST", path, text.encode(), query={"fieldValidation": validation}, content=content
            )

    def serve(self, name: str, document: Object | None = None, **metadata: Any) -> None:
        """Have one served."""
        self.space.apply(model(name, document or spec(), **metadata))
        self.space.wait_settled(name)

    def end(self, *names: str) -> None:
        """Delete them, and wait until nothing of them is left."""
        for name in names:
            self.space.api.call("DELETE", kinds.MODEL_DEPLOYMENT.path(self.space.namespace, name))
        until(
            lambda: [self.of(name) for name in names], lambda left: not any(left), what=f"{names} are gone", limit_s=30
        )

    def of(self, name: str) -> list[Object]:
        """Children of a model."""
        return made_for(name, everything(self.space))

    def other(self, name: str) -> Space:
        """One more namespace."""
        return prepared(self.space.api, name)


@dataclass(frozen=True)
class Kept(Api):
    """Connections that are kept, one for each thread: so many wait here at once that their handshakes would take a core."""

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
        """End them, once no thread asks any more."""
        for connection in self._all:
            connection.close()


def model(name: str, document: Object, **metadata: Any) -> Object:
    """A ModelDeployment."""
    return {
        "apiVersion": kinds.MODEL_DEPLOYMENT.api_version,
        "kind": kinds.MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name, **metadata},
        "spec": document,
    }


def prepared(server: Api, name: str) -> Space:
    """A namespace in which models can be served: with its service account, and the files of a model."""
    space = Space(server, name)
    space.make()
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: server.exists(path), bool, what=f"namespace {name} has its service account")
    space.apply(files())
    return space


def everything(space: Space) -> list[Object]:
    """Every object of a kind that the operator makes, whoever made it."""
    return [{**obj, "kind": kind.kind} for kind in CHILDREN for obj in space.every(kind)]


def made_for(name: str, objects: list[Object]) -> list[Object]:
    """Those that are a model's by their name, their label or their owner: one of the three would be enough to be an escape."""
    return [obj for obj in objects if obj["metadata"]["name"].startswith(f"{name}-") or name in _names(obj["metadata"])]


def _names(meta: Object) -> set[str]:
    owners = {owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "ModelDeployment"}
    return {meta["name"], (meta.get("labels") or {}).get("serving.halcyon.dev/model-deployment", "")} | owners
