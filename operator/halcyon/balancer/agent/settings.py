"""Settings of the agent, from its command line and its environment."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon.balancer.config.model import Listen, Ports, TlsFiles
from halcyon.balancer.secrets.mounted_secrets import MountedSecrets

if TYPE_CHECKING:
    from halcyon.balancer.secrets.mounted_secrets import SecretNames


@dataclass(frozen=True)
class AgentSettings:
    """Settings of one agent."""

    namespace: str
    plan: str
    """Name of the ConfigMap that holds the plan."""
    pod: str
    """Name of the agent's pod."""
    run_dir: Path = Path("/run/halcyon")
    port: int = 9100
    ports: Ports = field(default_factory=Ports)
    metrics_port: int = 8002
    """Triton's metrics port."""
    secrets: Path = Path("/var/run/secrets")
    """Folder that contains `kubernetes.io/serviceaccount/`, `halcyon/token` and a folder for each Secret in `front`."""
    host: str | None = None
    """Address on which the HTTP server of the probes listens; None for all addresses."""
    stop_within_s: float = 30.0
    """Time after a drain in which HAProxy must stop, in seconds; if it has not, the agent becomes ready again."""
    drain_key: str = ""
    """Key that a request to `/drain` must have; if empty, `/drain` is closed."""
    front: SecretNames | None = None
    """Secrets for the client-facing ports (TLS, API keys); None if there are none."""

    @property
    def config(self) -> Path:
        """Path of haproxy.cfg."""
        return self.run_dir / "haproxy.cfg"


def listen(settings: AgentSettings) -> Listen:
    """Return HAProxy's listen addresses before the first certificate is loaded."""
    tls = TlsFiles() if settings.front and settings.front.certificate else None
    return Listen(settings.ports, _has_ipv6(), str(settings.run_dir / "haproxy.sock"), tls)


def files(settings: AgentSettings) -> MountedSecrets | None:
    """Return the mounted Secrets that `front` names; None if it names none."""
    if settings.front is None:
        return None
    return MountedSecrets(settings.front, mounted=settings.secrets, config=settings.config)


def _has_ipv6() -> bool:
    """Return True if the pod's network supports IPv6, so that HAProxy can listen on it."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
