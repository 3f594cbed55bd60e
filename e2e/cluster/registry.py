"""The node's image registry, started by `up --registry`: Debian's docker-registry (CNCF Distribution).

It runs in the cluster's network and stores images in the cluster's directory, so it is removed with the cluster. It
uses TLS with the API server's certificate, so that a single CA is sufficient for the node.
"""

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network
from e2e.cluster.places import Place, cache
from e2e.cluster.processes import Started, start
from images import apt

COMPONENT = "registry"
MIRRORED = ("nvcr.io",)
"""Registries in whose place the node asks this one first: no test machine can pull from them."""
_PORT = 5000
_SYSTEM_CAS = Path("/etc/ssl/certs/ca-certificates.crt")


def address(network: Network) -> str:
    """Return HOST:PORT, valid on the host and on the node."""
    return f"{network.node_address}:{_PORT}"


def ensure() -> Path:
    """Download the program, and return its path.

    Raises:
        ClusterError: it can't be downloaded.
    """
    try:
        return apt.unpacked("docker-registry", cache()) / "usr" / "bin" / "docker-registry"
    except apt.AptError as error:
        raise ClusterError(str(error)) from None


def trusted_by_node(place: Place) -> Path:
    """Return the directory of registry settings that containerd reads. It may be empty."""
    return place.state / "registries"


def trusting(place: Place) -> Path:
    """Return a file with the machine's trusted CAs and the cluster's, for programs that read SSL_CERT_FILE."""
    return place.state / "cas.pem"


def start_registry(place: Place, program: Path, network: Network) -> Started:
    """Start the registry, and make the node and the host's programs trust it. `answers` reports when it is usable."""
    ca = place.pki / "ca.crt"
    host = f"https://{address(network)}"
    for name in (address(network), *MIRRORED):
        for_node = trusted_by_node(place) / name
        for_node.mkdir(parents=True)
        # Debian's containerd (1.6) reads only the `ca` of a host, not that of the whole file.
        (for_node / "hosts.toml").write_text(f'[host."{host}"]\ncapabilities = ["pull", "resolve"]\nca = "{ca}"\n')
    cas = [_SYSTEM_CAS.read_text()] if _SYSTEM_CAS.is_file() else []
    trusting(place).write_text("\n".join([*cas, ca.read_text()]))
    config = place.state / "registry.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "version": 0.1,
                "storage": {"filesystem": {"rootdirectory": str(place.state / "registry")}},
                "http": {
                    "addr": address(network),
                    "tls": {
                        "certificate": str(place.pki / "apiserver.crt"),
                        "key": str(place.pki / "apiserver.key"),
                    },
                },
            }
        )
    )
    return start(place, COMPONENT, [program, "serve", config], enter=network.enter)


def answers(place: Place, network: Network) -> bool:
    """Return True if the registry responds to requests."""
    trust = ssl.create_default_context(cafile=str(place.pki / "ca.crt"))
    try:
        with urllib.request.urlopen(f"https://{address(network)}/v2/", context=trust, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
