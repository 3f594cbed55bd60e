"""Ports for test servers that no other process takes between selection and use."""

import itertools
import os
import random
import socket

_FIRST, _EACH = 10000, 2500
"""First port and number of ports per xdist worker. They are below the kernel's range for outgoing connections (from
32768) and the cluster's range (from 20000)."""
_WORKERS = 4


def _mine() -> range:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    return range(_FIRST + worker * _EACH, _FIRST + (worker + 1) * _EACH)


_start = random.randrange(_EACH)
_next = itertools.cycle([*_mine()[_start:], *_mine()[:_start]])


def free_ports(count: int) -> list[int]:
    """Return ports that are unused on all IPv4 addresses. A port is reused only after all others."""
    ports: list[int] = []
    for port in itertools.islice(_next, _EACH):
        with socket.socket() as probe:
            # Set the same option as servers do, so that closed connections don't occupy a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"{count} ports are wanted, and of {_EACH} from {_mine().start} up {len(ports)} are free")
