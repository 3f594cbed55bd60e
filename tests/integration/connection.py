"""A persistent connection to an API server. A new connection for each request would cost more than the request."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from e2e.cluster.cluster import Cluster
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.strategies import Document
from tests.unit.control.scope_builders import resource

STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
LIMIT_S = 40
TIMEOUT_S = 60
"""Time limit for a response in seconds, so that a missing response fails the test."""
IDLE_S = 30
"""Idle time in seconds after which the connection is replaced. The API server closes it after 90 s."""


@dataclass(frozen=True)
class Answer:
    """A response of the API server."""

    status: int
    body: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """Warnings of the API server, as in the Warning headers."""

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Connection:
    """A connection to the API server."""

    def __init__(self, cluster: Cluster) -> None:
        identity = cluster.api.identity
        context = ssl.create_default_context(cafile=str(identity.ca))
        context.load_cert_chain(identity.certificate, identity.key)
        address = urlsplit(identity.url)
        self._http = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=TIMEOUT_S, context=context
        )
        self._used = time.monotonic()

    def close(self) -> None:
        self._http.close()

    def send(
        self, method: str, path: str, body: object = None, *, query: dict[str, str] | None = None,
        content: str = "application/json",
    ) -> Answer:  # fmt: skip
        return self.send_text(
            method, path, None if body is None else _json_that_is_yaml(body), query=query, content=content
        )

    def send_text(
        self, method: str, path: str, text: bytes | None, *, query: dict[str, str] | None = None, content: str
    ) -> Answer:
        """Send a request with this text as its body."""
        if time.monotonic() - self._used > IDLE_S:
            self._http.close()  # the request opens a new connection
        self._http.request(method, f"{path}?{urlencode(query or {})}", text, {"Content-Type": content})
        response = self._http.getresponse()
        payload = response.read()
        self._used = time.monotonic()
        # A path that isn't served yet gives a response that isn't JSON.
        body = json.loads(payload) if payload.startswith(b"{") else {"message": payload.decode()}
        return Answer(response.status, body, tuple(response.headers.get_all("Warning") or ()))

    def apply(self, kind: Kind, obj: dict[str, Any], *, subresource: str = "", **query: str) -> Answer:
        """Apply an object server-side."""
        meta = obj["metadata"]
        path = kind.path(meta.get("namespace", ""), meta["name"], subresource)
        parameters = {"fieldManager": "halcyon", "force": "true"} | query
        return self.send("PATCH", path, obj, query=parameters, content="application/apply-patch+yaml")

    def try_spec(self, spec: Document, *, name: str = "digits", namespace: str = "default", **query: str) -> Answer:
        """Return the API server's response to a ModelDeployment with this spec, without storing it (dry run)."""
        body = resource() | {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        del body["status"]
        return self.send("POST", kinds.MODEL_DEPLOYMENT.path(namespace), body, query=STRICT | query)


def _json_that_is_yaml(value: object) -> bytes:
    # Server-side apply parses YAML, which has no surrogate pairs and rejects some characters that aren't escaped.
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[\x7f-\uffff]", lambda match: f"\\u{ord(match[0]):04x}", text).encode()
