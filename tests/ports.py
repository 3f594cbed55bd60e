"""Ports for servers of tests, which nobody else takes between their choice and their use."""

import itertools
import os
import random
import socket

_FIRST, _EACH = 10000, 2500
"""Below what the kernel gives to outgoing connections (32768 up), and below the cluster's (20000 up); so many for each worker of xdist."""
_WORKERS = 4


def _mine() -> range:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    return range(_FIRST + worker * _EACH, _FIRST + (worker + 1) * _EACH)


_start = random.randrange(_EACH)
_next = itertools.cycle([*_mine()[_start:], *_mine()[:_start]])


def free_ports(count: int) -> list[int]:
    """Ports that nothing uses now, on any address of IPv4; a port comes again only after all others."""
    found: list[int] = []
    for port in itertools.islice(_next, _EACH):
        with socket.socket() as probe:
            # As servers do: connections that have ended don't keep a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} ports are wanted, and of {_EACH} from {_mine().start} up {len(found)} are free")
