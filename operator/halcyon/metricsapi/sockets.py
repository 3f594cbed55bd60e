"""Listening sockets of the node's address families."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Final

MAX_BACKLOG = 1024
"""Connections that the kernel holds until they are accepted: all agents of a lost replica reconnect at once, and a handshake that
finds the queue full is retried only a second later."""
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of a node without IPv6, or without IPv4."""
FAMILIES: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))


def listen(host: str | None, port: int) -> list[socket.socket]:
    """Open the sockets: without a host, one for each family that the node has, on the same port.

    Two sockets and not one for both: on that one, clients' IPv4 addresses would look like IPv6 ones.
    """
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return [_bound(family, host, port)]
    return listen_on_all(port)


def listen_on_all(port: int, families: Iterable[tuple[socket.AddressFamily, str]] = FAMILIES) -> list[socket.socket]:
    """Open a socket for each family and address, and leave out a family that the node does not have.

    Raises:
        OSError: the port is taken, or the node has none of them.
    """
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, every in families:
            try:
                sockets.append(_bound(family, every, sockets[0].getsockname()[1] if sockets else port))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                missing = error
    except OSError:
        for one in sockets:
            one.close()
        raise
    if not sockets:
        raise missing or OSError(f"no address family is given to listen on port {port}")
    return sockets


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listening = socket.create_server((host, port), family=family, backlog=MAX_BACKLOG)
    listening.setblocking(False)
    return listening
