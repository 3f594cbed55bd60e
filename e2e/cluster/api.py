"""The few API requests needed to start a cluster. Running kubectl for each of them would take 0.2 s."""

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from e2e.cluster.errors import ClusterError
from e2e.cluster.pki import Identity

_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An HTTP status and the decoded body; `body` is None if it isn't a JSON object."""

    status: int
    body: dict[str, Any] | None


@dataclass(frozen=True)
class Api:
    """A client of one API server, with a new connection for each call."""

    identity: Identity

    def call(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Answer:
        """Send one request. If the server is unreachable the status is 0, because callers poll while it starts."""
        address = urlsplit(self.identity.url)
        context = ssl.create_default_context(cafile=str(self.identity.ca))
        context.load_cert_chain(self.identity.certificate, self.identity.key)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=_TIMEOUT_S, context=context
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content_type})
            response = connection.getresponse()
            return Answer(status=response.status, body=_object(response.read()))
        except (OSError, http.client.HTTPException):
            return Answer(status=0, body=None)
        finally:
            connection.close()

    def ready(self) -> bool:
        """Return True if the API server reports that it is ready."""
        return self.call("GET", "/readyz").status == http.client.OK

    def exists(self, path: str) -> bool:
        """Return True if there is an object at PATH."""
        return self.call("GET", path).status == http.client.OK

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Create an object; an existing one isn't changed."""
        answer = self.call("POST", path, body)
        if answer.status not in {http.client.CREATED, http.client.CONFLICT}:
            raise ClusterError(f"POST {path} was answered {answer.status}: {(answer.body or {}).get('message', '')}")

    def merge(self, path: str, body: dict[str, Any]) -> None:
        """Merge BODY into the object at PATH."""
        answer = self.call("PATCH", path, body, content_type="application/merge-patch+json")
        if answer.status != http.client.OK:
            raise ClusterError(f"PATCH {path} was answered {answer.status}: {(answer.body or {}).get('message', '')}")

    def node_ready(self, name: str) -> bool:
        """Return True if the node's condition Ready is True and it has no taint that keeps pods away."""
        node = self.call("GET", f"/api/v1/nodes/{name}").body or {}
        conditions = node.get("status", {}).get("conditions", [])
        tainted = any(taint.get("effect") == "NoSchedule" for taint in node.get("spec", {}).get("taints", []))
        return not tainted and any(
            condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions
        )


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        decoded = json.loads(content)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None
