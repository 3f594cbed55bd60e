"""One HTTP connection to a model, timed by phase: to an address, or through the API server to a pod.

Not here: what is sent (`tensors`), and how Triton's protocol goes (tritonclient).
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from halcyon_cli.errors import ClusterError, Failure, InputError
from halcyon_cli.kube.client import Cluster


class NoAnswer(Failure):
    """The connection was there, and the answer was not to be had."""


@dataclass(frozen=True)
class Phases:
    """Where the time of a request went, in seconds."""

    connect: float
    """Until bytes could be sent; 0 for a request on a connection that was there."""
    send: float
    """Until the last byte of the request was given away."""
    wait: float
    """Until the first byte of the answer: queue, batch and model, and the way."""
    receive: float
    """Until its last byte."""

    @property
    def total(self) -> float:
        """All of them."""
        return self.connect + self.send + self.wait + self.receive


@dataclass(frozen=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes
    phases: Phases


class Wire:
    """A connection."""

    def __init__(self, connection: http.client.HTTPConnection, connect_s: float, who: str, prefix: str = "") -> None:
        """`who` is at the other end, for messages; `prefix` stands in front of every path."""
        self._connection, self._connect_s, self._prefix = connection, connect_s, prefix
        self.who = who

    @classmethod
    def to_url(cls, url: str, *, timeout_s: float) -> Self:
        """Connect to an address such as `http://127.0.0.1:8000`.

        Raises:
            InputError: it is no such address.
            ClusterError: nobody answers there.
        """
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError(f"--url is {url}; it must be an address, for example http://127.0.0.1:8000")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        began = time.perf_counter()
        try:
            connection.connect()
        except OSError as error:
            raise ClusterError(
                f"{url} can't be reached ({error}); leave --url out to go through the API server"
            ) from None
        return cls(connection, time.perf_counter() - began, parts.netloc, parts.path.rstrip("/"))

    @classmethod
    def to_pod(cls, cluster: Cluster, pod: str, port: int, *, timeout_s: float) -> Self:
        """Connect to a pod's port through the API server and the kubelet, as kubectl port-forward does.

        Raises:
            ClusterError: that is not allowed, or doesn't work.
        """
        from kubernetes import client, stream  # noqa: PLC0415  # loaded by now
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415

        began = time.perf_counter()
        forward = client.CoreV1Api(cluster.api).connect_get_namespaced_pod_portforward
        try:
            tunnel = stream.portforward(forward, pod, cluster.namespace, ports=str(port))
        except (ApiException, OSError) as error:
            said = " ".join(str(getattr(error, "reason", error)).split())
            raise ClusterError(
                f"pod {pod} can't be reached through the API server: {said}; ask for the verb create on pods/portforward in "
                f"namespace {cluster.namespace}, or give an address, for example --url http://127.0.0.1:{port}"
            ) from None
        connection = http.client.HTTPConnection(pod, port, timeout=timeout_s)
        connection.sock = tunnel.socket(port)
        connection.sock.settimeout(timeout_s)
        return cls(connection, time.perf_counter() - began, f"pod {pod}")

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Send a request, and read all of its answer.

        Raises:
            NoAnswer: none came, or not in time.
        """
        connect_s, self._connect_s = self._connect_s, 0.0
        began = time.perf_counter()
        try:
            self._connection.request(method, self._prefix + path, body, dict(headers or {}))
            sent = time.perf_counter()
            response = self._connection.getresponse()
            first = time.perf_counter()
            content = response.read()
        except TimeoutError:
            waited = time.perf_counter() - began
            raise NoAnswer(f"{self.who} has not answered within {waited:.1f} s; --wait 5m waits longer") from None
        except (http.client.HTTPException, OSError) as error:
            raise NoAnswer(f"{self.who} gives no answer: {error!r}") from None
        done = time.perf_counter()
        named = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, named, content, Phases(connect_s, sent - began, first - sent, done - first))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def closing(self) -> Any:  # a context manager of this
        """For `with`."""
        return closing(self)
