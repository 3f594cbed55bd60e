"""`halcyon operator` as a real process on this machine, with the tests' API server.

It runs outside the cluster with an administrator's kubeconfig, so its role is not tested here (the tests of the chart
and the scenarios do that). Out of scope: its objects (`operator_space`), and faults (`proxy`).
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from e2e.cluster.cluster import Cluster
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports

CRD = Path("crds/modeldeployments.serving.halcyon.dev.yaml")
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modeldeployments.serving.halcyon.dev"
BATCH_CRD = Path("crds/batchinferences.serving.halcyon.dev.yaml")
IMAGES = (
    "--operator-image=localhost/halcyon-operator:dev",
    "--balancer-image=localhost/halcyon-balancer:dev",
    "--server-image=localhost/tritonserver-cpu:24.10",
)


def crd() -> dict[str, Any]:
    """Return the generated CRD."""
    document = yaml.safe_load(CRD.read_text())
    assert isinstance(document, dict)
    return document


def install(cluster: Cluster) -> str:
    """Create the objects of the chart, and return the name of their namespace.

    The objects are the CRDs, and a namespace with the empty Secret.
    """
    api = cluster.api
    api.create(CRD_PATH.rpartition("/")[0], crd())
    api.create(CRD_PATH.rpartition("/")[0], yaml.safe_load(BATCH_CRD.read_text()))
    until(
        lambda: api.call("GET", "/apis/serving.halcyon.dev/v1alpha1/modeldeployments").status,
        lambda status: status == 200,
        goal="the API server serves ModelDeployments",
    )
    namespace = f"halcyon-{uuid.uuid4().hex[:8]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "halcyon-tls"}})
    return namespace


def environment() -> dict[str, str]:
    """Return the environment of a process that caches compiled imports, as in the image."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": "operator"}


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Return the process id."""

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status."""

    def kill(self) -> None:
        """Kill it, if it still runs."""


@dataclass
class Operator:
    """One operator replica."""

    namespace: str
    name: str
    kubeconfig: Path
    directory: Path
    """Folder of its log."""
    watch: str = ""
    """Namespaces to watch, separated by commas; empty: all."""
    more: tuple[str, ...] = ()
    """Additional options."""
    port: int = field(default_factory=lambda: free_ports(1)[0])
    http_port: int = field(default_factory=lambda: free_ports(1)[0])
    process: Process | None = None
    images: tuple[str, ...] = IMAGES
    """Options for the images; other versions of the operator have different ones."""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of `halcyon operator`."""
        return [
            f"--namespace={self.namespace}",
            f"--pod-name={self.name}",
            *(f"--watch-namespace={namespace}" for namespace in self.watch.split(",")),
            f"--kubeconfig={self.kubeconfig}",
            f"--port={self.port}",
            f"--http-port={self.http_port}",
            *self.images,
            *self.more,
        ]

    @property
    def log(self) -> Path:
        """Return the path of the log, which has JSON lines."""
        return self.directory / f"{self.name}-{self.http_port}.log"

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        command = [sys.executable, "-m", "halcyon.main", "operator", *self.arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())

    @property
    def pid(self) -> int:
        """Return the ID of the running process."""
        assert self.process is not None
        return self.process.pid

    def wait_leading(self, limit_s: float = 20.0) -> None:
        """Wait until it leads and has started to reconcile."""
        until(
            lambda: self.logged("started as the leader"),
            bool,
            goal=f"{self.name} works",
            limit_s=limit_s,
            context=self.tail,
        )

    def wait_ready(self, limit_s: float = 20.0) -> None:
        """Wait until /readyz succeeds."""
        until(lambda: self.fetch("/readyz"), bool, goal=f"{self.name} is ready", limit_s=limit_s, context=self.tail)

    def fetch(self, path: str) -> str:
        """Return the response of its plain HTTP port; empty if there is none, or an error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5 * PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def metrics(self) -> dict[str, float]:
        """Return the samples by name with labels, as in Prometheus text."""
        lines = [line.rpartition(" ") for line in self.fetch("/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def lines(self) -> list[dict[str, Any]]:
        """Return the log lines so far."""
        if not self.log.exists():
            return []
        records = []
        # The last line may be incomplete.
        for line in self.log.read_text().rpartition("\n")[0].splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                records.append({"level": "garbage", "message": line})
        return records

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the log lines with this message."""
        return [line for line in self.lines() if line["message"] == message]

    def complaints(self) -> list[dict[str, Any]]:
        """Return the log lines that no healthy run has: exceptions, and lines that aren't JSON (tracebacks)."""
        return [line for line in self.lines() if line["level"] in {"error", "critical", "garbage"}]

    def tail(self) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text().splitlines()[-15:]) if self.log.exists() else "(no log)"

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def wait(self, limit_s: float = 15.0 * PATIENCE) -> int:
        """Wait until the process has ended, and return its exit status."""
        assert self.process is not None
        return self.process.wait(limit_s)

    def stop(self) -> int:
        """End the process as the kubelet does, kill it if it doesn't react, and return its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextmanager
def running(cluster: Cluster, directory: Path, *, watch: str = "", more: tuple[str, ...] = ()) -> Iterator[Operator]:
    """Run an operator with its own installation. Its log must contain no error at the end."""
    operator = Operator(install(cluster), "op-0", cluster.kubeconfig, directory, watch, more)
    operator.start()
    try:
        operator.wait_leading()
        yield operator
        assert not operator.complaints(), operator.complaints()
    finally:
        operator.stop()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{operator.namespace}")
