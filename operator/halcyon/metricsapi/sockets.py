"""Listening sockets for IPv4 and IPv6, or for one of them if the node doesn't support both."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Final

MAX_BACKLOG = 1024
"""Maximum number of connections that the kernel queues before the process accepts them.

After a replica is lost, all its agents reconnect at once. If the queue is full, a client retries only after a second.
"""
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Error codes that show that the node does not support an address family."""
FAMILIES: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))


def listen(host: str | None, port: int) -> list[socket.socket]:
    """Open listening sockets.

    Without a host, one socket is opened for each address family of the node, on the same port.

    A single socket for both families is not used, because clients' IPv4 addresses would appear as IPv6 addresses on it.
    """
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return [_bound(family, host, port)]
    return listen_on_all(port)


def listen_on_all(port: int, families: Iterable[tuple[socket.AddressFamily, str]] = FAMILIES) -> list[socket.socket]:
    """Open a socket for each address family and address. Families that the node does not support are skipped.

    Raises:
        OSError: the port is in use, or the node supports none of the families.
    """
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in families:
            try:
                sockets.append(_bound(family, address, sockets[0].getsockname()[1] if sockets else port))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                missing = error
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    if not sockets:
        raise missing or OSError(f"no address family is given to listen on port {port}")
    return sockets


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listening = socket.create_server((host, port), family=family, backlog=MAX_BACKLOG)
    listening.setblocking(False)
    return listening
