"""What a hostile client of one model does to its balancer: deeds, each bounded in connections, rate and time.

`python -m tests.adversary.client.deeds NAME SECONDS HTTP GRPC METRICS AGENT KEY` does one, from 127.0.0.9 to ports of
127.0.0.1. A separate process, so that its work does not delay the clients whose waits are measured. With a key, the
client may use the model; without one (KEY is `-`) it gets 401 for requests.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.integration import crowd
from tests.integration.crowd import frame

SOURCE: Final = "127.0.0.9"
MANY: Final = 8500
OPENED_PER_S: Final = 3000
FRAMES_PER_S: Final = 20_000
_DATA, _PRIORITY, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 2, 3, 4, 6, 8, 9
_INDEXED = 0x40
"""First byte of an HPACK literal that enters the table of the connection."""
_TICK_S = 0.05


@dataclass(frozen=True)
class Aim:
    """Ports of the balancer, and the client's API key; empty without one."""

    http: int
    grpc: int
    metrics: int
    agent: int
    key: str

    def request(self, method: str, path: str, *headers: str) -> bytes:
        """Return the head of an HTTP request, without the empty line."""
        lines = [f"{method} {path} HTTP/1.1", "Host: m", *headers]
        return "\r\n".join([*lines, *([f"x-api-key: {self.key}"] if self.key else [])]).encode() + b"\r\n"

    def call(self, stream: int, body: bytes | None = None, *, whole: bool = False, answer_bytes: int = 0) -> bytes:
        """Return a gRPC inference call, whose response has this size."""
        more = {b"answer-bytes": b"%d" % answer_bytes} if answer_bytes else {}
        return crowd.call(stream, "ModelInfer", body, complete=whole, key=self.key, more=more)


Deed = Callable[[Aim, float], None]
_INFER = "/v2/models/m/infer"
_STATISTICS = "/v2/models/m/stats"


def hold(
    port: int, count: int, says: bytes, until: float, *, then: bytes = b"", small: bool = False, half: bool = False
) -> None:
    """Keep `count` connections that have sent `says`, and open others for those that are closed.

    Args:
        port: port to connect to.
        count: number of connections.
        says: first bytes of each.
        until: monotonic time of the end.
        then: bytes that each connection sends once per second.
        small: whether the receive buffers are as small as possible. No connection is read.
        half: whether each connection ends its own direction after its first bytes.
    """
    held: list[socket.socket] = []
    beat = time.monotonic()
    while time.monotonic() < until:
        held = [one for one in held if _is_open(one)]
        for _ in range(min(count - len(held), int(OPENED_PER_S * _TICK_S))):
            held.append(_connected(port, says, small=small))
            if half:
                with contextlib.suppress(OSError):
                    held[-1].shutdown(socket.SHUT_WR)
        if then and time.monotonic() > beat + 1:
            beat = time.monotonic()
            for one in held:
                with contextlib.suppress(OSError):
                    one.send(then)
        time.sleep(_TICK_S)
    for one in held:
        one.close()


def repeat(port: int, count: int, says: bytes, until: float, *, per_s: float = 5000) -> None:
    """Send `says` over `count` connections, as often as the responses are read, and connect again after a close."""
    waiting = selectors.DefaultSelector()
    for _ in range(count):
        waiting.register(_connected(port, says), selectors.EVENT_READ)
    sent, began = 0, time.monotonic()
    while time.monotonic() < until:
        for ready, _ in waiting.select(_TICK_S):
            one = ready.fileobj
            assert isinstance(one, socket.socket)
            try:
                is_open = bool(one.recv(1 << 20))
                if is_open:
                    one.send(says)
            except BlockingIOError:
                continue
            except OSError:
                is_open = False
            if not is_open:
                waiting.unregister(one)
                one.close()
                waiting.register(_connected(port, says), selectors.EVENT_READ)
            sent += 1
        time.sleep(max(0.0, min(_TICK_S, sent / per_s - (time.monotonic() - began))))
    for kept in list(waiting.get_map().values()):
        kept.fileobj.close()  # type: ignore[union-attr]  # all are sockets


def flood(port: int, first: bytes, frames: Iterator[bytes], until: float, *, connections: int = 4) -> None:
    """Send frames over a few connections as fast as the balancer takes them, up to `FRAMES_PER_S` in all."""
    held = [_connected(port, first) for _ in range(connections)]
    sent, began = 0, time.monotonic()
    while time.monotonic() < until:
        for index, one in enumerate(held):
            if not _is_open(one):
                one.close()
                held[index] = _connected(port, first)
            with contextlib.suppress(OSError):
                one.send(b"".join(next(frames) for _ in range(100)))
            sent += 100
        time.sleep(max(0.001, min(_TICK_S, sent / FRAMES_PER_S - (time.monotonic() - began))))
    for one in held:
        one.close()


def _connected(port: int, says: bytes, *, small: bool = False) -> socket.socket:
    one = socket.socket()
    one.settimeout(1)
    one.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the local port is chosen at connect
    if small:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    with contextlib.suppress(OSError):
        one.bind((SOURCE, 0))
        one.connect(("127.0.0.1", port))
        one.setblocking(False)
        if says:
            one.send(says)
    one.setblocking(False)
    return one


def _is_open(one: socket.socket) -> bool:
    """Return whether the balancer has not closed the connection; what it sent stays unread."""
    try:
        return one.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _calls(
    aim: Aim, body: bytes, *, whole: bool = False, window: int = 65535, count: int = 1000, answer_bytes: int = 0
) -> bytes:
    calls = (aim.call(2 * number + 1, body, whole=whole, answer_bytes=answer_bytes) for number in range(count))
    return crowd.preface(window=window) + b"".join(calls)


def _streams() -> Iterator[int]:
    return (2 * (number % 2**29) + 1 for number in itertools.count())


def _resets(aim: Aim, body: bytes | None = None, *, last: bytes | None = None) -> Iterator[bytes]:
    """Return calls that end at once: by the client, or by the balancer because of a frame with an error."""
    for stream in _streams():
        end = frame(_RST_STREAM, 0, stream, struct.pack(">I", 8))
        yield aim.call(stream, body) + (end if last is None else frame(_WINDOW_UPDATE, 0, stream, last))


def _priorities() -> Iterator[bytes]:
    for stream in _streams():
        yield frame(_PRIORITY, 0, stream, struct.pack(">IB", max(stream - 2, 0), 255))


def _tables() -> Iterator[bytes]:
    """Return calls of another service, each with fields that push all others out of the connection's table."""
    for number, stream in enumerate(_streams()):
        more = {b"x-a": b"%d" % number + b"a" * 3000}
        yield crowd.call(stream, "none", complete=True, more=more, kind=_INDEXED)


def _same(made: bytes) -> Iterator[bytes]:
    while True:
        yield made


def _post(aim: Aim, *headers: str, body: bytes = b"") -> bytes:
    return aim.request("POST", _INFER, *headers) + b"\r\n" + body


def _whole(aim: Aim) -> bytes:
    return _post(aim, "Content-Length: 2", body=b"{}")


def _stream_calls(aim: Aim, body: bytes | None) -> bytes:
    calls = (crowd.call(2 * number + 1, "ModelStreamInfer", body, key=aim.key) for number in range(250))
    return crowd.preface() + b"".join(calls)


_LARGE = 4 << 20
"""Bytes of a body that is larger than all buffers, so its request is sent to a server before it is complete."""
_FIRST = 48 << 10
_HALF_CALL = crowd.message(23_900, announced=2 * 23_900)
_ANSWER = 1 << 20
"""Bytes of a response that is larger than all buffers on the way to a client with a small one."""
_SMALL = b"\0\0\0\0\0"
_PAGE = b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n"

_MANY_HEADERS = crowd.ASKS_ONCE[:-2] + b"".join(b"x-%d: a\r\n" % number for number in range(95)) + b"\r\n"
_AMBIGUOUS = (
    b"POST /none HTTP/1.1\r\nHost: m\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + crowd.ASKS_ONCE
)

WITHOUT_KEY: dict[str, Deed] = {
    "idle connections": lambda a, t: hold(a.http, MANY, crowd.ASKS_ONCE, t),
    "silent connections": lambda a, t: hold(a.http, MANY, b"", t),
    "half heads": lambda a, t: hold(a.http, MANY, crowd.HALF_A_HEAD, t, then=b"x"),
    "large heads": lambda a, t: hold(a.http, 3000, crowd.HALF_A_HEAD + b"x" * 16_000, t, then=b"x"),
    "idle channels": lambda a, t: hold(a.grpc, MANY, crowd.preface(), t),
    "half calls": lambda a, t: hold(a.grpc, MANY, crowd.preface() + crowd.call(1, "ModelInfer")[:40], t),
    "connections in turn": lambda a, t: repeat(a.http, 64, b"GET /none HTTP/1.0\r\n\r\n", t, per_s=2000),
    "crowd at the metrics": lambda a, t: hold(a.metrics, MANY, _PAGE[:-2], t),
    "scrapes": lambda a, t: repeat(a.metrics, 8, _PAGE, t),
    "scrapes that are not read": lambda a, t: hold(a.metrics, MANY, _PAGE, t, small=True),
    "crowd at the agent": lambda a, t: hold(a.agent, 2000, crowd.HALF_A_HEAD, t),
    "drains": lambda a, t: repeat(a.agent, 8, b"GET /drain?delay=0 HTTP/1.1\r\nHost: m\r\n\r\n", t, per_s=200),
    "loads": lambda a, t: repeat(a.agent, 8, b"GET /load HTTP/1.1\r\nHost: m\r\n\r\n", t, per_s=200),
    "wrong paths": lambda a, t: repeat(a.http, 64, crowd.ASKS_ONCE, t),
    "pings": lambda a, t: flood(a.grpc, crowd.preface(), _same(frame(_PING, 0, 0, b"12345678")), t),
    "settings": lambda a, t: flood(a.grpc, crowd.preface(), _same(frame(_SETTINGS, 0, 0, b"")), t),
    "priorities": lambda a, t: flood(a.grpc, crowd.preface(), _priorities(), t),
    "header tables": lambda a, t: flood(a.grpc, crowd.preface(), _tables(), t),
    "windows": lambda a, t: flood(a.grpc, crowd.preface(), _same(frame(_WINDOW_UPDATE, 0, 0, b"\0\0\0\1")), t),
    "many headers": lambda a, t: repeat(a.http, 64, _MANY_HEADERS, t, per_s=2000),
    "pipelined requests": lambda a, t: repeat(a.http, 64, crowd.ASKS_ONCE * 100, t, per_s=50),
    "half-closed connections": lambda a, t: hold(a.http, 2000, crowd.ASKS_ONCE, t, half=True),
    "ambiguous requests": lambda a, t: repeat(a.http, 64, _AMBIGUOUS, t, per_s=2000),
    "continuations": lambda a, t: flood(
        a.grpc, crowd.preface() + frame(1, 0, 1, b""), _same(frame(_CONTINUATION, 0, 1, b"")), t
    ),
}
"""Deeds of a client that has no key; with or without API keys they are possible."""

WITH_KEY: dict[str, Deed] = {
    "half bodies": lambda a, t: hold(a.http, 3000, _post(a, "Content-Length: 20000", body=b"x" * 10_000), t),
    "slow bodies": lambda a, t: hold(a.http, 3000, _post(a, "Content-Length: 20000", body=b"x"), t, then=b"x"),
    "endless chunks": lambda a, t: hold(
        a.http, 3000, _post(a, "Transfer-Encoding: chunked", body=b"1\r\nx\r\n"), t, then=b"1\r\nx\r\n"
    ),
    "calls that never end": lambda a, t: hold(a.grpc, 24, _calls(a, _HALF_CALL), t),
    "answers that are not read": lambda a, t: hold(a.grpc, 200, _calls(a, _SMALL, whole=True, window=0), t),
    "tiny windows": lambda a, t: hold(
        a.grpc, 24, _calls(a, _SMALL, whole=True, window=1), t, then=frame(_WINDOW_UPDATE, 0, 1, b"\0\0\0\1")
    ),
    "large answers that are not read": lambda a, t: hold(
        a.http, 400, _post(a, "Content-Length: 2", f"answer-bytes: {_ANSWER}", body=b"{}"), t, small=True
    ),
    "large answers of calls that are not read": lambda a, t: hold(
        a.grpc, 24, _calls(a, _SMALL, whole=True, window=0, count=250, answer_bytes=100_000), t
    ),
    "large answers in tiny windows": lambda a, t: hold(
        a.grpc,
        200,
        _calls(a, _SMALL, whole=True, window=1, count=4, answer_bytes=100_000),
        t,
        then=b"".join(frame(_WINDOW_UPDATE, 0, stream, b"\0\0\0\1") for stream in (1, 3, 5, 7)),
    ),
    "empty data": lambda a, t: flood(a.grpc, crowd.preface() + a.call(1), _same(frame(_DATA, 0, 1, b"")), t),
    "resets": lambda a, t: flood(a.grpc, crowd.preface(), _resets(a), t),
    "resets after data": lambda a, t: flood(a.grpc, crowd.preface(), _resets(a, _SMALL), t),
    "resets by the balancer": lambda a, t: flood(a.grpc, crowd.preface(), _resets(a, last=b"\0\0\0\0"), t),
    "requests without end": lambda a, t: repeat(a.http, 256, _whole(a), t),
    "reads without end": lambda a, t: repeat(a.http, 400, a.request("GET", _STATISTICS) + b"\r\n", t, per_s=2000),
    "slow large bodies": lambda a, t: hold(
        a.http, 400, _post(a, f"Content-Length: {_LARGE}", body=b"x" * _FIRST), t, then=b"x" * 64
    ),
    "large calls that never end": lambda a, t: hold(
        a.grpc, 400, crowd.preface() + a.call(1, crowd.message(_FIRST, announced=_LARGE)), t
    ),
    "streams that never end": lambda a, t: hold(a.grpc, 24, _stream_calls(a, crowd.message(1)), t),
    "streams without a message": lambda a, t: hold(a.grpc, 24, _stream_calls(a, None), t),
}
"""Deeds of a client that may use the model."""

DEEDS: dict[str, Deed] = WITHOUT_KEY | WITH_KEY


def main(argv: list[str]) -> None:
    """Do one deed."""
    name, seconds, *ports, key = argv
    http, grpc, metrics, agent = map(int, ports)
    aim = Aim(http, grpc, metrics, agent, "" if key == "-" else key)
    with crowd.files(18_000):
        DEEDS[name](aim, time.monotonic() + float(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
