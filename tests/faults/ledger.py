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
from collections import defaultdict
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
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = defaultdict(Counts)
        self._live: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Uids that exist, by namespace and kind."""
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for kind in KINDS:
            listed = self._api.call("GET", kind.path()).body
            assert listed is not None, kind
            for obj in listed["items"]:
                self._live[obj["metadata"].get("namespace", ""), kind.kind].add(obj["metadata"]["uid"])
            self._threads.append(threading.Thread(target=self._watch, args=(kind, listed), daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._sockets:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def counts(self, namespace: str) -> Counts:
        """Return what was created and deleted in a namespace, once the watches have seen what exists there now."""
        for kind in KINDS:
            until(
                lambda kind=kind: self._uids(kind, namespace) ^ self._seen(kind, namespace),  # type: ignore[misc]
                lambda left: not left,
                what=f"the watch of {kind.plural} has caught up in {namespace}",
            )
        with self._lock:
            found = self._counts[namespace]
            return Counts(found.created.copy(), found.deleted.copy())

    def _uids(self, kind: Kind, namespace: str) -> set[str]:
        listed = self._api.call("GET", kind.path(namespace)).body or {"items": []}
        return {obj["metadata"]["uid"] for obj in listed["items"]}

    def _seen(self, kind: Kind, namespace: str) -> set[str]:
        with self._lock:
            return set(self._live[namespace, kind.kind])

    def _watch(self, kind: Kind, listed: dict[str, Any]) -> None:
        identity = self._api.identity
        address = urlsplit(identity.url)
        context = ssl.create_default_context(cafile=str(identity.ca))
        context.load_cert_chain(identity.certificate, identity.key)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
        version = listed["metadata"]["resourceVersion"]
        with contextlib.closing(connection):
            connection.request("GET", f"{kind.path()}?watch=1&timeoutSeconds=3600&resourceVersion={version}")
            self._sockets.append(connection.sock)
            stream = connection.getresponse()
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                while line := stream.readline():
                    self._note(kind, json.loads(line))

    def _note(self, kind: Kind, event: Object) -> None:
        if event["type"] not in {"ADDED", "DELETED"}:
            return
        obj = event["object"]
        meta = obj["metadata"]
        with self._lock:
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
