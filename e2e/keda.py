"""The real KEDA for a cluster: its operator and its metrics server, built from the Go module pinned in `modules/keda`.

Both run as processes on this machine with an administrator's kubeconfig, not as pods with their own roles, and without
KEDA's admission webhook. While KEDA runs, it serves external.metrics.k8s.io, as in every installation.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import Started, tail, wait_until
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from halcyon.metricsapi.api_service import NAME as API_SERVICE_NAME
from tests.integration.certificates import pair
from tests.ports import free_ports

PINNED = Path(__file__).parent / "cluster" / "modules" / "keda"
NAMESPACE, SERVICE = "keda", "keda-operator-metrics-apiserver"
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MODULE = "github.com/kedacore/keda/v2"
_LIMIT_S = 60


@dataclass(frozen=True)
class Keda:
    """A running KEDA."""

    directory: Path
    """Folder of its logs."""

    def log_tail(self) -> str:
        """Return the end of the logs of its two processes."""
        return "\n".join(f"{log.stem}:\n{tail(log, lines=20)}" for log in sorted(self.directory.glob("*.log")))


def version() -> str:
    """Return the pinned version, for example 2.21."""
    match = re.search(rf"{re.escape(_MODULE)} v(\d+\.\d+)", (PINNED / "go.mod").read_text())
    assert match is not None, PINNED
    return match[1]


def definitions() -> list[dict[str, Any]]:
    """Return its released CRDs. Go downloads the module once, and checks it against go.sum."""
    completed = subprocess.run(
        [binaries.toolchain(), "mod", "download", "-json", _MODULE],
        cwd=PINNED,
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(json.loads(completed.stdout)["Dir"]) / "config" / "crd" / "bases"
    return [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]


def api_service(port: int = 443) -> dict[str, Any]:
    """Return the APIService with which KEDA serves the external metrics, through its Service at this port."""
    return {
        "apiVersion": kinds.API_SERVICE.api_version,
        "kind": kinds.API_SERVICE.kind,
        "metadata": {"name": API_SERVICE_NAME},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            # The certificate is for 127.0.0.1, the address at which its two programs reach each other.
            "insecureSkipTLSVerify": True,
            "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
        },
    }


@contextmanager
def running(cluster: Cluster, directory: Path) -> Iterator[Keda]:
    """Run KEDA while the context is open, and remove its objects at the end.

    ScaledObjects must be deleted before, because afterwards nothing removes their finalizers.

    Raises:
        ClusterError: it can't be built, or does not start.
    """
    programs = {name: binaries.extra_program(f"keda-{name}") for name in ("operator", "adapter")}
    [port] = free_ports(1)
    started: list[Started] = []
    try:
        _define(cluster)
        for name, command in _commands(cluster, programs, _certificates(directory), port):
            started.append(_start(cluster, name, directory / f"{name}.log", command))
        _register(cluster, port)
        goal = "KEDA serves external.metrics.k8s.io"
        wait_until(lambda: _serves(cluster), goal=goal, limit_s=_LIMIT_S, watched=started)
        yield Keda(directory)
    finally:
        for component in started:
            component.process.terminate()
        for component in started:
            component.process.wait(_LIMIT_S)
        _remove(cluster)


def _commands(
    cluster: Cluster, programs: dict[str, Path], certificates: Path, port: int
) -> Iterator[tuple[str, list[str]]]:
    """Return names and command lines of the two programs.

    They communicate by gRPC with mutual TLS, and the API server connects to `port`.
    """
    service, probes, metrics, plain = free_ports(4)
    kubeconfig = cluster.kubeconfig
    yield (
        "operator",
        [
            str(programs["operator"]),
            f"--cert-dir={certificates}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            "--enable-webhook-patching=false",
            "--enable-apiservice-patching=false",
        ],
    )
    yield (
        "adapter",
        [
            str(programs["adapter"]),
            f"--cert-dir={certificates}",
            f"--tls-cert-file={certificates / 'tls.crt'}",
            f"--tls-private-key-file={certificates / 'tls.key'}",
            f"--metrics-service-address=127.0.0.1:{service}",
            f"--secure-port={port}",
            f"--port={plain}",
            *(f"--{client}-kubeconfig={kubeconfig}" for client in ("lister", "authentication", "authorization")),
        ],
    )


def _start(cluster: Cluster, name: str, log: Path, command: list[str]) -> Started:
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "POD_NAMESPACE": NAMESPACE,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        "WATCH_NAMESPACE": "",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            # They must end even if the test run is killed.
            ["setpriv", "--pdeathsig=KILL", *command],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    return Started(component=f"KEDA's {name}", process=process, log=log)


def _certificates(directory: Path) -> Path:
    """Create a certificate for all of them, which is its own CA."""
    folder = directory / "certificates"
    folder.mkdir()
    certificate = pair()
    for name, text in (("ca.crt", certificate.crt), ("tls.crt", certificate.crt), ("tls.key", certificate.key)):
        (folder / name).write_text(text)
    return folder


def _define(cluster: Cluster) -> None:
    for definition in definitions():
        cluster.api.create(_CRDS, definition)
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    wait_until(
        lambda: cluster.api.exists(SCALED_OBJECT.path("default")),
        goal="the API server serves ScaledObjects",
        limit_s=_LIMIT_S,
    )


def _register(cluster: Cluster, port: int) -> None:
    """Create the APIService, and a Service that leads to this machine by the name localhost.

    Endpoints can't be loopback addresses (e2e.cluster.control_plane).
    """
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    if cluster.network.namespace is None:
        cluster.api.create(
            services, {"metadata": {"name": SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        )
    else:
        ports = [{"name": "https", "port": port, "protocol": "TCP"}]
        cluster.api.create(services, {"metadata": {"name": SERVICE}, "spec": {"ports": ports}})
        cluster.api.create(
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
            {
                "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [cluster.network.host_address]}],
            },
        )
    cluster.api.create(kinds.API_SERVICE.path(), api_service(port))


def _serves(cluster: Cluster) -> bool:
    document = cluster.api.call("GET", kinds.API_SERVICE.path("", API_SERVICE_NAME)).body or {}
    conditions = (document.get("status") or {}).get("conditions") or ()
    available = any(c["type"] == "Available" and c["status"] == "True" for c in conditions)
    return available and document["spec"]["service"]["namespace"] == NAMESPACE


def _remove(cluster: Cluster) -> None:
    cluster.api.call("DELETE", kinds.API_SERVICE.path("", API_SERVICE_NAME))
    for definition in definitions():
        cluster.api.call("DELETE", f"{_CRDS}/{definition['metadata']['name']}")
    cluster.api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
