"""`halcyon operator` as a real process on this machine, against the tests' API server.

What is not real: it runs outside the cluster with an administrator's kubeconfig, so its role is not tested here (the chart's
tests and the scenarios do that). Not here: what it is asked to do (`operator_space`), nor faults (`proxy`).
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
from typing import Any

import yaml

from e2e.cluster.cluster import Cluster
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports

CRD = Path("crds/modeldeployments.serving.halcyon.dev.yaml")
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modeldeployments.serving.halcyon.dev"
IMAGES = (
    "--operator-image=localhost/halcyon-operator:dev",
    "--balancer-image=localhost/halcyon-balancer:dev",
    "--server-image=localhost/tritonserver-cpu:24.10",
)


def crd() -> dict[str, Any]:
    """The generated CRD."""
    document = yaml.safe_load(CRD.read_text())
    assert isinstance(document, dict)
    return document


def install(cluster: Cluster) -> str:
    """Make what the chart makes: the CRD, and a namespace of its own with the empty Secret. The namespace's name."""
    api = cluster.api
    api.create(CRD_PATH.rpartition("/")[0], crd())
    until(
        lambda: api.call("GET", "/apis/serving.halcyon.dev/v1alpha1/modeldeployments").status,
        lambda status: status == 200,
        what="the API server serves ModelDeployments",
    )
    namespace = f"halcyon-{uuid.uuid4().hex[:8]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "halcyon-tls"}})
    return namespace


def environment() -> dict[str, str]:
    """That of a process whose imports are compiled once, as they are in the image."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": "operator"}


@dataclass
class Operator:
    """One replica."""

    namespace: str
    name: str
    kubeconfig: Path
    directory: Path
    """Where its log goes."""
    watch: str = ""
    """Namespaces, with commas between them; empty: all."""
    more: tuple[str, ...] = ()
    """More options."""
    port: int = field(default_factory=lambda: free_ports(1)[0])
    http_port: int = field(default_factory=lambda: free_ports(1)[0])
    process: subprocess.Popen[bytes] | None = None
    images: tuple[str, ...] = IMAGES
    """Options; those of another version name others."""

    @property
    def arguments(self) -> list[str]:
        """Of `halcyon operator`."""
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
        """JSON lines."""
        return self.directory / f"{self.name}-{self.http_port}.log"

    def start(self) -> None:
        """Start the process; it isn't ready yet."""
        command = [sys.executable, "-m", "halcyon.main", "operator", *self.arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment())

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    def wait_leading(self, limit_s: float = 20.0) -> None:
        """Until it leads and has begun to work."""
        until(
            lambda: self.said("started as the leader"),
            bool,
            what=f"{self.name} works",
            limit_s=limit_s,
            context=self.tail,
        )

    def wait_ready(self, limit_s: float = 20.0) -> None:
        """Until /readyz says so."""
        until(lambda: self.fetch("/readyz"), bool, what=f"{self.name} is ready", limit_s=limit_s, context=self.tail)

    def fetch(self, path: str) -> str:
        """The answer of its plain port; empty where it gives none or an error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5 * PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def metrics(self) -> dict[str, float]:
        """Samples by name with labels, as they are printed."""
        lines = [line.rpartition(" ") for line in self.fetch("/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        if not self.log.exists():
            return []
        found = []
        # Of the last line a part may be there.
        for line in self.log.read_text().rpartition("\n")[0].splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"level": "garbage", "message": line})
        return found

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines with this message."""
        return [line for line in self.lines() if line["message"] == message]

    def complaints(self) -> list[dict[str, Any]]:
        """Lines that no healthy run has: exceptions, and whatever isn't JSON (a traceback of the interpreter's)."""
        return [line for line in self.lines() if line["level"] in {"error", "critical", "garbage"}]

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-15:]) if self.log.exists() else "(no log)"

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, limit_s: float = 15.0 * PATIENCE) -> int:
        """Until the process has ended; its status."""
        assert self.process is not None
        return self.process.wait(limit_s)

    def stop(self) -> int:
        """End it as the kubelet does, and by force where that isn't heard; its status."""
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
    """An operator that works, in an installation of its own. At its end its log must hold no error."""
    operator = Operator(install(cluster), "op-0", cluster.kubeconfig, directory, watch, more)
    operator.start()
    try:
        operator.wait_leading()
        yield operator
        assert not operator.complaints(), operator.complaints()
    finally:
        operator.stop()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{operator.namespace}")
