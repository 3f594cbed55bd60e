"""Clients that misbehave towards a balancer: many connections from one address, and HTTP/2 written frame by frame.

The connections are plain sockets from which nothing is read. The tests measure their cost for the balancer, not the
responses.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ASKS_ONCE: Final = b"GET /none HTTP/1.1\r\nHost: m\r\n\r\n"
"""Request to which HAProxy itself responds, and keeps the connection open."""
HALF_A_HEAD: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: m\r\nX-Half: "
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def preface(*, window: int = 65535) -> bytes:
    """Return the first bytes of a client.

    `window` is how much of a response body it accepts without flow control updates.
    """
    room = frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30))
    return _PREFACE + frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, window)) + room


def text(value: bytes) -> bytes:
    """Return a text of HPACK, without Huffman's code."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, octets = len(value) - 127, [127]
    while rest >= 128:
        octets.append(rest % 128 + 128)
        rest //= 128
    return bytes([*octets, rest]) + value


def fields_of(fields: Mapping[bytes, bytes], *, kind: int = 0x10) -> bytes:
    """Return header fields as HPACK has them: as literals that are never indexed, or of another kind."""
    return b"".join(bytes([kind]) + text(name) + text(value) for name, value in fields.items())


def call(
    stream: int,
    method: str,
    body: bytes | None = None,
    *,
    complete: bool = False,
    key: str = "",
    more: Mapping[bytes, bytes] | None = None,
    kind: int = 0x10,
) -> bytes:
    """Return a gRPC call: its headers, with this API key and more fields, and this part of its body. `complete` ends the call there."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/inference.GRPCInferenceService/" + method.encode(),
        b":authority": b"m",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    } | ({b"x-api-key": key.encode()} if key else {})
    # Literals without indexing, so that no table of the connection is needed, unless `kind` is another.
    block = fields_of(fields | dict(more or {}), kind=kind)
    frames = frame(_HEADERS, _END_HEADERS | (_END_STREAM if complete and body is None else 0), stream, block)
    parts = [] if body is None else [body[at : at + 16384] for at in range(0, len(body), 16384)]
    for number, part in enumerate(parts, 1):
        frames += frame(_DATA, _END_STREAM if complete and number == len(parts) else 0, stream, part)
    return frames


def message(size: int, *, announced: int | None = None) -> bytes:
    """Return a gRPC message of `size` bytes. `announced` is the length in its prefix."""
    return b"\0" + struct.pack(">I", size if announced is None else announced) + b"x" * size


class Crowd:
    """Connections from one loopback address."""

    def __init__(self, source: str, port: int) -> None:
        """Set the address; no connection is opened yet."""
        self._source, self._port = source, port
        self.sockets: list[socket.socket] = []

    def come(self, count: int, says: bytes = b"") -> None:
        """Open `count` more connections, each of which sends these bytes."""
        for _ in range(count):
            connection = socket.socket()
            connection.settimeout(5)
            # Choose the local port at connect, so that more connections are possible than with ports reserved by bind.
            connection.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self._source, 0))
            with contextlib.suppress(OSError):
                connection.connect(("127.0.0.1", self._port))
                if says:
                    connection.sendall(says)
            connection.setblocking(False)
            self.sockets.append(connection)

    def kept(self) -> int:
        """Return the number of connections that the balancer has not closed."""
        return sum(_is_open(each) for each in self.sockets)

    def go(self) -> None:
        """Close all connections at once."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        self.sockets.clear()


_BIND_ADDRESS_NO_PORT = 24


def _is_open(each: socket.socket) -> bool:
    try:
        while each.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def files(count: int) -> Iterator[None]:
    """Raise this process's limit of open files while the context is open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
