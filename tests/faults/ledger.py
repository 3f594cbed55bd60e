"""Creates and deletes of all objects, as the API server reports them to watches of its own.

Polling would miss an object that exists for a tenth of a second, and a recreated one has the same name. Each kind is watched in all
namespaces, beside the proxy.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from e2e.cluster.api import Api
from halcyon.kube import kinds
from halcyon.kube.kinds import CHILDREN, Kind
from tests.faults.oracles import Counts, Object, named
from tests.integration.operator_space import REPLICA_SET
from tests.integration.waiting import until

KINDS = (*CHILDREN, kinds.MODEL_DEPLOYMENT, kinds.POD, REPLICA_SET, kinds.PERSISTENT_VOLUME_CLAIM, kinds.SECRET)
"""Kinds whose objects are counted and compared."""
OF_THE_NAMESPACE = {"kube-root-ca.crt", "default"}
"""Names of objects that Kubernetes creates in each namespace."""


class Ledger:
    """The counts of each namespace, a context manager that watches in threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: list[Kind] = []
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = defaultdict(Counts)
        self._live: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Uids that exist, by namespace and kind."""
        self._changes: dict[str, int] = defaultdict(int)
        self._changed_at: dict[str, float] = {}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.add(KINDS)
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def add(self, added: Iterable[Kind]) -> None:
        """Watch these kinds too, which the API server must have."""
        for kind in added:
            listed = self._api.call("GET", kind.path()).body
            assert listed is not None, kind
            for obj in listed["items"]:
                self._live[obj["metadata"].get("namespace", ""), kind.kind].add(obj["metadata"]["uid"])
            self._kinds.append(kind)
            self._threads.append(threading.Thread(target=self._watch, args=(kind, listed), daemon=True))
            self._threads[-1].start()

    def changed_at(self, namespaces: Collection[str]) -> float:
        """Return the monotonic time of the last change of any object of these namespaces, in seconds; 0 if there was none."""
        with self._lock:
            return max((self._changed_at.get(namespace, 0.0) for namespace in namespaces), default=0.0)

    def changes(self, namespace: str) -> int:
        """Return the number of changes of a namespace's objects so far."""
        with self._lock:
            return self._changes[namespace]

    def objects(self, namespaces: Sequence[str]) -> dict[str, list[tuple[str, Object]]]:
        """Return the objects of namespaces, by namespace, with their kinds, once the watches have seen all of them."""
        objects_by_namespace: dict[str, list[tuple[str, Object]]] = {namespace: [] for namespace in namespaces}
        for kind in self._kinds:
            listed = until(
                lambda kind=kind: self._listed(kind, objects_by_namespace),  # type: ignore[misc]
                lambda listed, kind=kind: self._has_seen(kind, listed),  # type: ignore[misc]
                goal=f"the watch of {kind.plural} has caught up",
            )
            for namespace, objects in listed.items():
                objects_by_namespace[namespace] += [
                    (kind.kind, {"kind": kind.kind, **obj})
                    for obj in objects
                    if obj["metadata"]["name"] not in OF_THE_NAMESPACE
                ]
        return objects_by_namespace

    def counts(self, namespace: str) -> Counts:
        """Return what was created and deleted in a namespace, as far as the watches have seen it."""
        with self._lock:
            counts = self._counts[namespace]
            return Counts(counts.created.copy(), counts.deleted.copy())

    def _listed(self, kind: Kind, namespaces: Iterable[str]) -> dict[str, list[Object]]:
        listed = self._api.call("GET", kind.path()).body
        assert listed is not None, kind
        by_namespace: dict[str, list[Object]] = {namespace: [] for namespace in namespaces}
        for obj in listed["items"]:
            by_namespace.get(obj["metadata"].get("namespace", ""), []).append(obj)
        return by_namespace

    def _has_seen(self, kind: Kind, listed: Mapping[str, list[Object]]) -> bool:
        with self._lock:
            return all(
                {obj["metadata"]["uid"] for obj in objects} == self._live[namespace, kind.kind]
                for namespace, objects in listed.items()
            )

    def _watch(self, kind: Kind, listed: dict[str, Any]) -> None:
        identity = self._api.identity
        address = urlsplit(identity.url)
        context = ssl.create_default_context(cafile=str(identity.ca))
        context.load_cert_chain(identity.certificate, identity.key)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
        version = listed["metadata"]["resourceVersion"]
        with contextlib.closing(connection):
            connection.request("GET", f"{kind.path()}?watch=1&timeoutSeconds=36000&resourceVersion={version}")
            self._sockets.append(connection.sock)
            stream = connection.getresponse()
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                while line := stream.readline():
                    self._note(kind, json.loads(line))

    def _note(self, kind: Kind, event: Object) -> None:
        obj = event["object"]
        meta = obj["metadata"]
        with self._lock:
            self._changes[meta.get("namespace", "")] += 1
            self._changed_at[meta.get("namespace", "")] = time.monotonic()
            if event["type"] not in {"ADDED", "DELETED"}:
                return
            counts = self._counts[meta.get("namespace", "")]
            live = self._live[meta.get("namespace", ""), kind.kind]
            if event["type"] == "ADDED":
                done = counts.created
                live.add(meta["uid"])
            else:
                done = counts.deleted
                live.discard(meta["uid"])
            if meta["name"] not in OF_THE_NAMESPACE:
                done[named(kind.kind, obj)] += 1
