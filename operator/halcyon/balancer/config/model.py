"""What a configuration is made for: ports, listeners, certificates, keys of server lines. Values without behaviour of their own.

Every module of `config` may use them, and so may those that talk to the HAProxy that runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from halcyon.balancer.config.writer import ConfigError

_FILE = re.compile(r"[a-z][a-z0-9.-]{0,63}")


@dataclass(frozen=True)
class TlsFiles:
    """Certificate files beside the runtime socket."""

    certificate: str = ""
    """Chain and key; empty where there is none yet: nobody may come."""
    clients: str = ""
    """Authorities of clients; empty where clients need no certificate."""


@dataclass(frozen=True)
class Ports:
    """Where HAProxy listens, and where Triton does."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 9101
    server_http: int = 8000
    server_grpc: int = 8001


@dataclass(frozen=True)
class Listen:
    """How this pod's HAProxy is reached."""

    ports: Ports = Ports()
    dual_stack: bool = False
    """Listen on IPv6 too. Must be false where the node has no IPv6: HAProxy would not start."""
    socket_path: str = "/run/halcyon/haproxy.sock"
    """Runtime socket, as HAProxy sees it. What else HAProxy needs lies beside it."""
    tls: TlsFiles | None = None
    """None: clients speak plain text."""
    keys: str | None = None
    """File with the API keys, beside the socket; None: clients need none."""

    def beside(self, name: str) -> str:
        """A file or socket of that name beside the runtime socket, as HAProxy sees it.

        Raises:
            ConfigError: where the name is none of ours.
        """
        if not _FILE.fullmatch(name):
            raise ConfigError(f"a file is named {name!r}; it must match {_FILE.pattern}, for example hold.lua")
        return str(PurePosixPath(self.socket_path).with_name(name))


@dataclass(frozen=True, order=True)
class LineKey:
    """One server line, in both protocols: `s3` of `http_a` and `grpc_a` is slot `a`, number 3."""

    slot: str
    number: int
