"""Keeps a test off the network: an audit hook, for it hears of every connection of the process, whatever library makes it.

Let through: sockets of the machine's file system (AF_UNIX), and pairs of sockets, which connect to nobody (asyncio's own). Not
held: what a process that a test starts does, and a name that is given to a socket itself, which no library does.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CONNECTING = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_held: list[Held] = []
"""The test that is held, if any; a hook can't be taken away."""


class ReachedOutError(RuntimeError):
    """A test has used the network."""


@dataclass(eq=False)
class Held:
    """A test that is held."""

    test: str
    refused: list[str] = field(default_factory=list)
    """What it has tried, in sentences: code under test may take the error for one of its own, and go on."""


def _hear(event: str, args: tuple[object, ...]) -> None:
    if not _held:
        return
    if event in _CONNECTING:
        _, address = args[0], args[1]
        # An address of a file is a text, one of the kernel's own parts (netlink) a pair of numbers.
        if isinstance(address, tuple) and address and isinstance(address[0], str):
            _refuse("connects to", _said(address))
    elif event == "socket.getaddrinfo" and isinstance(args[0], str | bytes) and not _is_address(args[0]):
        _refuse("looks up", str(args[0]))


def _said(address: tuple[object, ...]) -> str:
    return f"{address[0]} port {address[1]}" if len(address) > 1 else str(address[0])


def _is_address(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host.partition("%")[0])
    except ValueError:
        return False
    return True


def _refuse(does: str, what: str) -> None:
    said = f"{_held[-1].test} {does} {what}, and unit tests use no network: a test that needs a server belongs in tests/integration"
    _held[-1].refused.append(said)
    raise ReachedOutError(said)


sys.addaudithook(_hear)


@contextmanager
def no_network(test: str) -> Iterator[Held]:
    """Within it, connecting to an address of a network and looking up a name raise ReachedOutError, which names the test.

    Raises:
        ReachedOutError: at its end, if it was raised inside and went no further than there.
    """
    held = Held(test)
    _held.append(held)
    try:
        yield held
    finally:
        _held.remove(held)
    if held.refused:
        raise ReachedOutError(held.refused[0])
