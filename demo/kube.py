"""Kubernetes cluster for the demo: kubectl and Helm, fast reads, and addresses that are reachable from this machine."""

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import kubernetes

from demo.errors import DemoError
from e2e.cluster.kubectl import Kubectl, KubectlError, run

GROUP = "/apis/serving.halcyon.dev/v1alpha1"
OWNER_LABEL = "serving.halcyon.dev/model-deployment"
COMPONENT_LABEL = "app.kubernetes.io/component"
SYSTEM = "halcyon-system"
PATIENCE = 3.0
"""Factor for all time limits. The limits only end waits that would never succeed, and a busy machine needs more
time."""
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """Sample in Prometheus text format."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(kw_only=True)
class Kube:
    """Cluster, with the namespace of the demo's models.

    `reachable` is True if this machine can connect to Service and pod addresses, as with the embedded cluster.
    Otherwise `address` uses `kubectl port-forward`, which `close` ends.
    """

    kubeconfig: Path
    programs: Path
    namespace: str
    reachable: bool
    _client: Any = field(init=False, repr=False)
    _forwards: dict[tuple[str, int], tuple[subprocess.Popen[bytes], str]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        try:
            self._client = kubernetes.config.new_client_from_config(str(self.kubeconfig))
        except kubernetes.config.ConfigException as error:
            raise DemoError(f"KUBECONFIG {self.kubeconfig}: {error}") from None

    def __call__(self, *arguments: str, stdin: str | None = None, namespace: str | None = None) -> str:
        """Run `kubectl ARGUMENTS` in the demo's namespace or in `namespace`, and return its output.

        Raises:
            DemoError: kubectl failed; the message is kubectl's.
        """
        with _demo_errors():
            return self._kubectl(namespace or self.namespace)(*arguments, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        """Run `helm ARGUMENTS`, and return its output.

        Raises:
            DemoError: Helm failed; the message is Helm's.
        """
        with _demo_errors():
            return run(self.programs / "helm", *arguments, kubeconfig=self.kubeconfig)

    def apply(self, *objects: dict[str, Any]) -> str:
        """Apply objects with kubectl, as a user would."""
        with _demo_errors():
            return self._kubectl(self.namespace).apply(*objects, arguments=())

    def _kubectl(self, namespace: str) -> Kubectl:
        return Kubectl(programs=self.programs, kubeconfig=self.kubeconfig, namespace=namespace)

    def raw(self, path: str, **query: str) -> tuple[int, bytes]:
        """Send a GET request to the API server. Return (status, body), or (0, the reason) if the server is unreachable.

        This takes milliseconds, much less than kubectl.
        """
        if query:
            path = f"{path}?{urlencode(query)}"
        method, url, header, body, post = self._client.param_serialize("GET", path, auth_settings=["BearerToken"])
        try:
            answer = self._client.call_api(method, url, header, body, post, _request_timeout=30)
            return answer.status, answer.read() or b""
        except Exception as error:  # noqa: BLE001  # the client lets urllib3's own errors through, many kinds of them
            return 0, str(error).encode()

    def json(self, path: str, **query: str) -> dict[str, Any] | None:
        """Return an object from a path of the API server; None if it doesn't exist or there is no response."""
        status, body = self.raw(path, **query)
        if status != 200:
            return None
        decoded = json.loads(body)
        return decoded if isinstance(decoded, dict) else None

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return the items of a list from a path of the API server; empty if there is no response."""
        return list((self.json(path, **query) or {}).get("items") or [])

    def model(self, name: str) -> dict[str, Any] | None:
        """Return a ModelDeployment in the demo's namespace."""
        return self.json(f"{GROUP}/namespaces/{self.namespace}/modeldeployments/{name}")

    def condition(self, name: str, kind: str) -> dict[str, Any] | None:
        """Return a condition of a ModelDeployment."""
        conditions = ((self.model(name) or {}).get("status") or {}).get("conditions") or []
        return next((condition for condition in conditions if condition["type"] == kind), None)

    def pods(self, name: str, component: str) -> list[dict[str, Any]]:
        """Return the model pods or balancer pods of a ModelDeployment, including terminating ones."""
        selector = f"{OWNER_LABEL}={name},{COMPONENT_LABEL}={component}"
        return self.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)

    def operators(self) -> list[dict[str, Any]]:
        """Return the operator's pods that aren't terminating."""
        pods = self.items(f"/api/v1/namespaces/{SYSTEM}/pods", labelSelector="app.kubernetes.io/name=halcyon")
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def metrics(self, pod: dict[str, Any], port: int) -> list[Sample] | None:
        """Return the Prometheus metrics of a pod, read through the API server; None if the pod doesn't respond."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{port}/proxy/metrics"
        status, body = self.raw(path)
        return samples(body.decode()) if status == 200 else None

    def external_metric(self, name: str, metric: str) -> float | None:
        """Return a model's external metric as its HPA gets it, summed over pods; None if the API returns an error."""
        selector = f"{OWNER_LABEL}={name}"
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{self.namespace}/{metric}"
        metric_values = self.items(path, labelSelector=selector)
        return quantity(metric_values[0]["value"]) if metric_values else None

    def address(self, service: str, port: int) -> str | None:
        """Return host:port of a model's Service, reachable from this machine; None while it isn't available."""
        if self.reachable:
            document = self.json(f"/api/v1/namespaces/{self.namespace}/services/{service}")
            return None if document is None else f"{document['spec']['clusterIP']}:{port}"
        with self._lock:
            forward = self._forwards.get((service, port))
            if forward is None or forward[0].poll() is not None:
                # kubectl exits immediately if no pod behind the Service is ready.
                if not any(map(is_ready, self.pods(service, "balancer"))):
                    return None
                forward = self._forward(service, port)
                self._forwards[service, port] = forward
            return forward[1]

    def _forward(self, service: str, port: int) -> tuple[subprocess.Popen[bytes], str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local_port = probe.getsockname()[1]
        process = subprocess.Popen(
            [
                self.programs / "kubectl",
                f"--namespace={self.namespace}",
                "port-forward",
                "--address=127.0.0.1",
                f"service/{service}",
                f"{local_port}:{port}",
            ],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(
            lambda: process.poll() is not None or _listens(local_port),
            goal=f"kubectl port-forward of Service {service}",
            limit_s=15,
            every_s=0.02,
        )
        return process, f"127.0.0.1:{local_port}"

    def connects(self, service: str, port: int) -> bool:
        """Return True if a model's Service accepts a connection from this machine within a second."""
        address = self.address(service, port)
        if address is None:
            return False
        host, _, number = address.rpartition(":")
        try:
            socket.create_connection((host, int(number)), timeout=1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the port-forwards."""
        for process, _ in self._forwards.values():
            process.kill()
            process.wait()
        self._forwards.clear()

    def must_address(self, service: str, port: int) -> str:
        """Return the result of `address`; raise an error if the Service isn't available."""
        address = self.address(service, port)
        if address is None:
            raise DemoError(f"Service {service} is missing; see: kubectl describe mdep {service}")
        return address


@contextmanager
def _demo_errors() -> Iterator[None]:
    """Convert failures of kubectl and Helm to DemoError."""
    try:
        yield
    except KubectlError as error:
        raise DemoError(str(error)) from None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def samples(text: str) -> list[Sample]:
    """Parse Prometheus text format."""
    parsed = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            parsed.append(Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])))
    return parsed


def total(metrics: Iterable[Sample] | None, name: str) -> float:
    """Return the sum of a metric's samples; 0 if there are none."""
    return sum(sample.value for sample in metrics or () if sample.name == name)


def quantity(text: str) -> float:
    """Parse a Kubernetes quantity as used by the metrics APIs: `7`, `1500m`, `12k`."""
    factors = {"m": 1e-3, "u": 1e-6, "n": 1e-9, "k": 1e3, "M": 1e6}
    return float(text[:-1]) * factors[text[-1]] if text[-1] in factors else float(text)


def is_ready(pod: dict[str, Any]) -> bool:
    """Return True if a pod is Ready and isn't terminating."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def wait_for(is_met: Callable[[], bool], *, goal: str, limit_s: float, every_s: float = 0.2) -> float:
    """Wait until `is_met` returns a true value, and return the seconds that this took.

    Args:
        is_met: function that checks the condition.
        goal: description of the condition, for the error message.
        limit_s: time limit on an idle machine, in seconds.
        every_s: polling interval in seconds.

    Raises:
        DemoError: the condition was not met within `limit_s` times PATIENCE.
    """
    limit_s *= PATIENCE
    began_s = time.monotonic()
    while not is_met():
        if time.monotonic() - began_s > limit_s:
            raise DemoError(f"{goal}: not within {limit_s:g} s")
        time.sleep(every_s)
    return time.monotonic() - began_s
