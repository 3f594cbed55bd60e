"""Certificates and kubeconfigs of a cluster, created by kubeadm's phases."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import kubernetes_version
from e2e.cluster.network import Network
from e2e.cluster.places import Place
from e2e.cluster.system import command

# kubeadm rejects loopback addresses here. A control plane on loopback uses an address reserved for documentation, which
# only appears in certificates.
_NOT_LOOPBACK = "192.0.2.1"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Identity of a client of the API server: the server's address, its CA, and the client's certificate and key."""

    url: str
    ca: Path
    certificate: Path
    key: Path


def make(place: Place, bin_: Path, network: Network) -> None:
    """Create all certificates in `place.pki`, a kubeconfig per component in `place.state`, and `place.kubeconfig`."""
    place.pki.mkdir(parents=True, exist_ok=True)
    advertised = _NOT_LOOPBACK if network.namespace is None else network.node_address
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": advertised, "bindPort": network.api_port},
            "nodeRegistration": {"name": "node", "criSocket": f"unix://{place.containerd_socket}"},
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": kubernetes_version(),
            "clusterName": place.name,
            "certificatesDir": str(place.pki),
            "networking": {"podSubnet": network.pod_cidr, "serviceSubnet": network.service_cidr},
            "apiServer": {"certSANs": ["127.0.0.1", "localhost", network.node_address]},
            "encryptionAlgorithm": "ECDSA-P256",
        },
    ]
    config = place.state / "kubeadm.yaml"
    config.write_text(yaml.safe_dump_all(documents))
    phases: list[str | Path] = [bin_ / "kubeadm", "init", "phase"]
    command([*phases, "certs", "all", "--config", config])
    command([*phases, "kubeconfig", "all", "--config", config, "--kubeconfig-dir", place.state])
    for file in place.state.glob("*.conf"):
        _point_at(file, network.api_url)
    place.kubeconfig.write_bytes((place.state / "super-admin.conf").read_bytes())
    place.kubeconfig.chmod(0o600)
    _extract_admin(place)


def make_second(place: Place, bin_: Path, network: Network, *, name: str) -> None:
    """Create the kubeconfig of the second node's kubelet, which has the identity of the node NAME."""
    documents = list(yaml.safe_load_all((place.state / "kubeadm.yaml").read_text()))
    documents[0]["nodeRegistration"] = {"name": name, "criSocket": f"unix://{place.containerd_socket}"}
    place.files.mkdir(parents=True, exist_ok=True)
    config = place.files / "kubeadm.yaml"
    config.write_text(yaml.safe_dump_all(documents))
    phase: list[str | Path] = [bin_ / "kubeadm", "init", "phase", "kubeconfig", "kubelet"]
    command([*phase, "--config", config, "--kubeconfig-dir", place.files])
    _point_at(place.files / "kubelet.conf", network.api_url)


def admin(place: Place, network: Network) -> Identity:
    """Return the administrator's identity that `make` created."""
    return Identity(
        url=network.api_url,
        ca=place.pki / "ca.crt",
        certificate=place.pki / "super-admin.crt",
        key=place.pki / "super-admin.key",
    )


def _point_at(file: Path, url: str) -> None:
    config = yaml.safe_load(file.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = url
    file.write_text(yaml.safe_dump(config))


def _extract_admin(place: Place) -> None:
    user = yaml.safe_load(place.kubeconfig.read_text())["users"][0]["user"]
    for field, name in (("client-certificate-data", "super-admin.crt"), ("client-key-data", "super-admin.key")):
        file = place.pki / name
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(user[field]))
