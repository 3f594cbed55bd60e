"""Prevents a test from using the network, with an audit hook, which is called for every connection of the process.

Allowed are sockets in the machine's file system (AF_UNIX), and socket pairs, which have no address (asyncio uses them).
Not covered are processes that a test starts, and names that are passed directly to a socket, which no library does.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CONNECTING = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_held: list[Held] = []
"""The test that must not use the network, if any. An audit hook can't be removed."""


class ReachedOutError(RuntimeError):
    """An attempt of a test to use the network."""


@dataclass(eq=False)
class Held:
    """A test that must not use the network."""

    test: str
    refused: list[str] = field(default_factory=list)
    """Its attempts, one sentence each. The code under test may catch the error and continue."""


def _hear(event: str, args: tuple[object, ...]) -> None:
    if not _held:
        return
    if event in _CONNECTING:
        _, address = args[0], args[1]
        # The address of a file is a text; the address of a kernel component (netlink) is a pair of numbers.
        if isinstance(address, tuple) and address and isinstance(address[0], str):
            _refuse("connects to", _shown(address))
    elif event == "socket.getaddrinfo" and isinstance(args[0], str | bytes) and not _is_address(args[0]):
        _refuse("looks up", str(args[0]))


def _shown(address: tuple[object, ...]) -> str:
    return f"{address[0]} port {address[1]}" if len(address) > 1 else str(address[0])


def _is_address(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host.partition("%")[0])
    except ValueError:
        return False
    return True


def _refuse(action: str, target: str) -> None:
    message = f"{_held[-1].test} {action} {target}, and unit tests use no network: a test that needs a server belongs in tests/integration"
    _held[-1].refused.append(message)
    raise ReachedOutError(message)


sys.addaudithook(_hear)


@contextmanager
def no_network(test: str) -> Iterator[Held]:
    """Raise ReachedOutError with the test's name on each connection to a network address, and on each name lookup.

    Raises:
        ReachedOutError: at the end of the context, if it was raised before and was caught by other code.
    """
    held = Held(test)
    _held.append(held)
    try:
        yield held
    finally:
        _held.remove(held)
    if held.refused:
        raise ReachedOutError(held.refused[0])
