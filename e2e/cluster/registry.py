"""The node's image registry: Debian's docker-registry (CNCF Distribution), where `up --registry` asks for one.

It runs in the cluster's network and keeps what it is given in the cluster's directory, so it ends with the cluster. It speaks
TLS with the API server's certificate: one CA will do for all that a node has.
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
_PORT = 5000
_SYSTEM_CAS = Path("/etc/ssl/certs/ca-certificates.crt")


def address(network: Network) -> str:
    """HOST:PORT, from the host and for the node alike."""
    return f"{network.node_address}:{_PORT}"


def ensure() -> Path:
    """Fetch the program, and return it.

    Raises:
        ClusterError: it can't be had.
    """
    try:
        return apt.unpacked("docker-registry", cache()) / "usr" / "bin" / "docker-registry"
    except apt.AptError as error:
        raise ClusterError(str(error)) from None


def trusted_by_node(place: Place) -> Path:
    """The directory that containerd reads for what is special about a registry; it may be empty."""
    return place.state / "registries"


def trusting(place: Place) -> Path:
    """A file of the CAs that the machine trusts, and the cluster's: for programs that heed SSL_CERT_FILE."""
    return place.state / "cas.pem"


def start_registry(place: Place, program: Path, network: Network) -> Started:
    """Start it, and let the node and the host's programs trust it; `answers` tells when it may be used."""
    ca = place.pki / "ca.crt"
    for_node = trusted_by_node(place) / address(network)
    for_node.mkdir(parents=True)
    # Debian's containerd (1.6) heeds `ca` of a host only, not that of the file as a whole.
    host = f"https://{address(network)}"
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
    """Tell whether it takes requests."""
    trust = ssl.create_default_context(cafile=str(place.pki / "ca.crt"))
    try:
        with urllib.request.urlopen(f"https://{address(network)}/v2/", context=trust, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
