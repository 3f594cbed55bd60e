"""HTTP connection to a model, by URL or through the API server to a pod, which measures each phase of a request.

Out of scope: the tensors (`tensors`) and Triton's protocol (tritonclient).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlsplit

from halcyon.kube import kinds
from halcyon_cli.errors import ClusterError, Failure, InputError
from halcyon_cli.kube.client import Cluster

_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
"""Characters in the path of a URL that are not escaped, besides letters, digits and `-._`."""


class NoResponse(Failure):
    """The model sent no response to a request."""


@dataclass(frozen=True)
class Phases:
    """Duration of each phase of a request, in seconds."""

    connect: float
    """Time to open the connection; 0 for a request on an open connection."""
    send: float
    """Time to send the request."""
    wait: float
    """Time until the first byte of the response, spent in the queue, the batch, the model and the network."""
    receive: float
    """Time to receive the rest of the response."""

    @property
    def total(self) -> float:
        """Sum of all phases."""
        return self.connect + self.send + self.wait + self.receive


@dataclass(frozen=True)
class HttpResponse:
    """HTTP response of a model."""

    status: int
    headers: Mapping[str, str]
    """Headers of the response, with names in lower case."""
    body: bytes
    phases: Phases


def open_tunnel(cluster: Cluster, pod: str, port: int) -> socket.socket:
    """Open a connection to a pod's port through the API server and the kubelet, as kubectl port-forward does.

    Raises:
        ClusterError: the port-forward is forbidden or fails.
    """
    from halcyon_cli.kube import tunnel  # noqa: PLC0415  # most commands open none

    try:
        return tunnel.open_tunnel(cluster.transport, kinds.POD.path(cluster.namespace, pod), port)
    except tunnel.TunnelError as error:
        raise ClusterError(
            f"pod {pod} is unreachable through the API server: {error}; you need the verb create on pods/portforward in "
            f"namespace {cluster.namespace}"
        ) from None


def _with_tls(tunnel: socket.socket, pod: str) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(tunnel)
    except OSError as error:
        raise ClusterError(f"pod {pod}: no TLS connection: {error}") from None


class ModelConnection:
    """An open HTTP connection to a model."""

    def __init__(self, connection: http.client.HTTPConnection, connect_s: float, peer: str, prefix: str = "") -> None:
        """Store an open connection. `peer` is its name in messages, and `prefix` is prepended to every path."""
        self._connection, self._connect_s, self._prefix = connection, connect_s, prefix
        self.peer = peer
        self.headers: dict[str, str] = {}
        """Headers of every request, for example with an API key."""

    @classmethod
    def to_url(cls, url: str, *, timeout_s: float) -> Self:
        """Connect to a URL such as `http://127.0.0.1:8000`.

        Raises:
            InputError: the URL is invalid.
            ClusterError: the connection fails.
        """
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            host, port = parts.hostname or "", parts.port
        except ValueError:  # of the brackets or the port
            parts, host, port = SplitResult("", "", "", "", ""), "", None
        if parts.scheme not in {"http", "https"} or not host:
            raise InputError(f"--url is {url}; it must be a URL, for example http://127.0.0.1:8000")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(host, port, timeout=timeout_s)
        started = time.perf_counter()
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # the latter of a host that isn't one
            raise ClusterError(f"{url} is unreachable ({error}); omit --url to go through the API server") from None
        return cls(
            connection,
            time.perf_counter() - started,
            parts.netloc,
            quote(parts.path, safe=_PATH_CHARACTERS).rstrip("/"),
        )

    @classmethod
    def to_pod(cls, cluster: Cluster, pod: str, port: int, *, timeout_s: float, encrypted: bool = False) -> Self:
        """Connect to a pod's port through the API server and the kubelet, as kubectl port-forward does.

        If `encrypted` is True, the pod's port uses TLS. Its certificate isn't verified, because the API server
        identifies the pod, and the pod's name isn't in the certificate.

        Raises:
            ClusterError: the port-forward is forbidden or fails.
        """
        started = time.perf_counter()
        try:
            tunnel = open_tunnel(cluster, pod, port)
        except ClusterError as error:
            raise ClusterError(f"{error}, or give a URL, for example --url http://127.0.0.1:{port}") from None
        connection = http.client.HTTPConnection(pod, port, timeout=timeout_s)
        tunnel.settimeout(timeout_s)
        connection.sock = _with_tls(tunnel, pod) if encrypted else tunnel
        return cls(connection, time.perf_counter() - started, f"pod {pod}")

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a request, and read the whole response.

        Raises:
            NoResponse: the connection failed, or the response didn't arrive in time.
        """
        connect_s, self._connect_s = self._connect_s, 0.0
        started = time.perf_counter()
        try:
            self._connection.request(method, self._prefix + path, body, {**self.headers, **(headers or {})})
            sent = time.perf_counter()
            response = self._connection.getresponse()
            first = time.perf_counter()
            content = response.read()
        except TimeoutError:
            waited = time.perf_counter() - started
            raise NoResponse(
                f"{self.peer} has not responded within {waited:.1f} s; to wait longer, use for example --wait 5m"
            ) from None
        except (http.client.HTTPException, OSError) as error:
            if isinstance(error, ssl.SSLError) and "CERTIFICATE_REQUIRED" in str(error):
                raise NoResponse(
                    f"{self.peer} requires a client certificate, which halcyon infer doesn't send; use for example curl --cert"
                ) from None
            raise NoResponse(f"{self.peer} sent no response: {error!r}") from None
        done = time.perf_counter()
        response_headers = {name.lower(): value for name, value in response.getheaders()}
        return HttpResponse(
            response.status, response_headers, content, Phases(connect_s, sent - started, first - sent, done - first)
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def closing(self) -> Any:  # a context manager of this
        """Return a context manager that closes the connection."""
        return closing(self)
