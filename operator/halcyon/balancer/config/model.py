"""Inputs of a configuration: ports, listeners, certificates, keys of servers. Values without behaviour of their own.

Every module of `config` may use them, and so may modules that access the running HAProxy.
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
    """Chain and key; empty if there is none yet, and then no client can connect."""
    clients: str = ""
    """Client CAs; empty if clients need no certificate."""


@dataclass(frozen=True)
class Ports:
    """Ports of HAProxy and of Triton."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 9101
    server_http: int = 8000
    server_grpc: int = 8001


@dataclass(frozen=True)
class Listen:
    """Listen addresses and files of this pod's HAProxy."""

    ports: Ports = Ports()
    dual_stack: bool = False
    """Listen on IPv6 too. Must be false if the node has no IPv6: HAProxy would not start."""
    socket_path: str = "/run/halcyon/haproxy.sock"
    """Runtime socket, as HAProxy sees it. HAProxy's other files are beside it."""
    tls: TlsFiles | None = None
    """None if clients use plain text."""
    keys: str | None = None
    """File with the API keys, beside the socket; None if clients need none."""

    def beside(self, name: str) -> str:
        """Return the path of a file or socket beside the runtime socket, as HAProxy sees it.

        Raises:
            ConfigError: the name is not one of ours.
        """
        if not _FILE.fullmatch(name):
            raise ConfigError(f"a file is named {name!r}; it must match {_FILE.pattern}, for example hold.lua")
        return str(PurePosixPath(self.socket_path).with_name(name))


@dataclass(frozen=True, order=True)
class ServerKey:
    """Key of one server, in both protocols: `s3` of `http_a` and `grpc_a` is slot `a`, number 3."""

    slot: str
    number: int
