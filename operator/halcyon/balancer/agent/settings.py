"""Where an agent runs: what its command line and its pod tell it."""

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
    """Where the agent runs."""

    namespace: str
    plan: str
    """Name of the plan's ConfigMap."""
    pod: str
    """Name of this pod."""
    run_dir: Path = Path("/run/halcyon")
    port: int = 9100
    ports: Ports = field(default_factory=Ports)
    metrics_port: int = 8002
    """Triton's."""
    secrets: Path = Path("/var/run/secrets")
    """Holds `kubernetes.io/serviceaccount/` and `halcyon/token`, and the folders of `front`."""
    host: str | None = None
    """Address of the probes; all where it is None."""
    stop_within_s: float = 30.0
    """A HAProxy that isn't stopped so long after a drain is not going to be."""
    front: SecretNames | None = None
    """Secrets for what clients meet; None where there are none."""

    @property
    def config(self) -> Path:
        """haproxy.cfg."""
        return self.run_dir / "haproxy.cfg"


def listen(settings: AgentSettings) -> Listen:
    """How HAProxy is reached in this pod, before anything is known of a certificate."""
    tls = TlsFiles() if settings.front and settings.front.certificate else None
    return Listen(settings.ports, _has_ipv6(), str(settings.run_dir / "haproxy.sock"), tls)


def files(settings: AgentSettings) -> MountedSecrets | None:
    """The files of `front`."""
    if settings.front is None:
        return None
    return MountedSecrets(settings.front, mounted=settings.secrets, config=settings.config)


def _has_ipv6() -> bool:
    """HAProxy can listen on IPv6 here."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
