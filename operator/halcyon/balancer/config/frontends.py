"""`bind` lines of haproxy.cfg: HAProxy's ports, with the protocol and the TLS settings of each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from halcyon.balancer.config.error_responses import Protocol
    from halcyon.balancer.config.model import Listen
    from halcyon.balancer.config.writer import Writer

_PROTOCOL_OPTIONS: dict[Protocol, tuple[str, str]] = {"http": ("", " alpn http/1.1"), "grpc": (" proto h2", " alpn h2")}
"""`bind` options of HAProxy for each protocol, as (options for a port without TLS, options for a port with TLS)."""
_SOCKETS: Final[dict[Protocol, int]] = {"http": 16, "grpc": 1}
"""Number of listening sockets for each protocol's port.

HAProxy accepts four connections from a socket, and then polls all ready connections before it returns to the socket.
Because `tune.maxpollevents` is small, this takes long: new connections waited for seconds behind some hundreds of busy
ones. More sockets accept more connections at a time. gRPC has only one socket, because a new gRPC connection may bring
256 calls at once.
"""


def bind(out: Writer, listen: Listen, port: int, options: str, **values: str) -> None:
    """Add a `bind` line for the port on all addresses of the pod; `$name` in `options` stands for one of `values`."""
    out.add(("bind :::$port v4v6" if listen.dual_stack else "bind :$port") + options, port=port, **values)


def check_socket(protocol: Protocol) -> str:
    """Return the name of the unix socket at which the agent checks that a protocol's front end accepts connections."""
    return f"check-{protocol}.sock"


def bind_clients(out: Writer, listen: Listen, protocol: Protocol) -> None:
    """Add the `bind` lines of the port on which clients connect with a protocol."""
    out.add("bind unix@$file mode 600 proto h2", file=listen.beside(check_socket(protocol)))
    port = listen.ports.http if protocol == "http" else listen.ports.grpc
    plain, encrypted = _PROTOCOL_OPTIONS[protocol]
    if listen.tls is None:
        for _ in range(_SOCKETS[protocol]):
            bind(out, listen, port, plain)
    elif not listen.tls.certificate:
        # Without a certificate no client can connect: HAProxy never falls back to plain text. A front end must have an address, so it
        # gets a unix socket that nothing uses.
        out.add(f"bind unix@$file mode 600{plain}", file=listen.beside(f"shut-{protocol}.sock"))
    else:
        options = f" ssl crt $file ssl-min-ver TLSv1.2{encrypted}"
        values = {"file": listen.beside(listen.tls.certificate)}
        if listen.tls.clients:
            options += " ca-file $ca_file verify required"
            values["ca_file"] = listen.beside(listen.tls.clients)
        for _ in range(_SOCKETS[protocol]):
            bind(out, listen, port, options + plain, **values)


def prologue(out: Writer, listen: Listen) -> None:
    """Add the TLS settings to the section `global` of haproxy.cfg."""
    if listen.tls is not None:
        # HAProxy's default of 20,000 cached TLS sessions takes at least 4 MiB.
        out.add("tune.ssl.cachesize 2000")
        out.add("ssl-default-bind-ciphers ECDHE+AESGCM:ECDHE+CHACHA20")
