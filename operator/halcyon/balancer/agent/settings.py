"""Settings of the agent, from its command line and its environment."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon.api.documents.balancer_plan import CollectorAddress
from halcyon.balancer.config.model import Listen, Ports, TlsFiles
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets

if TYPE_CHECKING:
    from halcyon.api.documents.balancer_plan import BalancerPlan
    from halcyon.balancer.secrets.mounted_secrets import SecretNames


@dataclass(frozen=True)
class AgentSettings:
    """Settings of one agent, from its command line and its environment."""

    namespace: str
    plan: str
    """Name of the ConfigMap that holds the balancer plan."""
    pod: str
    """Name of the agent's pod."""
    run_dir: Path = Path("/run/halcyon")
    port: int = 9100
    ports: Ports = field(default_factory=Ports)
    metrics_port: int = 8002
    """Port on which Triton serves its metrics."""
    secrets: Path = Path("/var/run/secrets")
    """Folder that contains `kubernetes.io/serviceaccount/`, `halcyon/token`, and a folder for each Secret in
    `front`."""
    host: str | None = None
    """Address on which the agent's HTTP server listens; None for all addresses."""
    stop_within_s: float = 30.0
    """Time after a drain within which HAProxy must stop, in seconds. If it is still running then, the agent becomes
    ready again."""
    drain_key: str = ""
    """Secret key that a request to `/drain` must have. If it is empty, all requests to `/drain` are rejected."""
    front: SecretNames | None = None
    """Secrets for the client-facing ports (TLS, API keys); None if there are none."""
    collector: CollectorAddress | None = None
    """Address to which reports are sent, without the CA certificate. None means that the address is in the plan."""

    @property
    def config(self) -> Path:
        """Path of the configuration file haproxy.cfg."""
        return self.run_dir / "haproxy.cfg"


def listen(settings: AgentSettings) -> Listen:
    """Return the addresses on which HAProxy listens before the first certificate is loaded."""
    tls = TlsFiles() if settings.front and settings.front.certificate else None
    return Listen(settings.ports, _has_ipv6(), str(settings.run_dir / "haproxy.sock"), tls)


def files(settings: AgentSettings) -> MountedSecrets | None:
    """Return the files for HAProxy from the Secrets in `front`; None if `front` names none."""
    if settings.front is None:
        return None
    return MountedSecrets(settings.front, mounted=settings.secrets, config=settings.config)


def collector_address(address: str, server_name: str) -> CollectorAddress | None:
    """Return the collector's address from `HOST:PORT`; None if `address` is empty.

    Raises:
        ValueError: there is no port number.
    """
    host, _, port = address.rpartition(":")
    return CollectorAddress(host, int(port), server_name, ca_pem="") if address else None


def collector_of(settings: AgentSettings, plan: BalancerPlan) -> CollectorAddress | None:
    """Return the address to which the agent sends its reports and its token.

    Return None if the plan has no CA certificate yet. If the settings have an address, only the CA certificate comes
    from the plan. Tenants can edit the plan, but with a forged certificate, no report is sent.
    """
    if plan.collector is None or settings.collector is None:
        return plan.collector
    return replace(settings.collector, ca_pem=plan.collector.ca_pem)


def _has_ipv6() -> bool:
    """Return True if the pod's network supports IPv6, so that HAProxy can listen on it."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
