"""A proxy in front of a store, for tests, which adds a fault to the content of objects."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

FAULTS = ("denied", "expired", "slow", "truncated", "wrong checksum", "gone", "too large", "redirect")
"""The eight faults of a store. `too large` is one of the download's limit, not of the proxy."""
_HOP = {"transfer-encoding", "connection", "content-length", "date", "server"}


@dataclass
class FaultyProxy:
    """A running proxy."""

    upstream: int
    """Port of the store on 127.0.0.1."""
    is_object: Callable[[str], bool]
    """Whether a path is that of an object's content."""
    keeps_host: bool = False
    """Whether the store gets the client's header `Host`, which a signature may cover."""
    has_conditions: bool = True
    """Whether the client can notice a replaced object by a condition (412); otherwise it has another size."""
    port: int = 0
    fault: str = ""


@contextmanager
def fronting(proxy: FaultyProxy) -> Iterator[FaultyProxy]:
    """Run the proxy on 127.0.0.1 while the block runs."""
    server = _Server(proxy)
    proxy.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.released = threading.Event()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._forward()

    def do_HEAD(self) -> None:
        self._forward()

    def _forward(self) -> None:
        proxy = self.server.proxy
        fault = proxy.fault if proxy.is_object(unquote(urlsplit(self.path).path)) else ""
        if status := {"denied": 403, "expired": 401, "gone": 404}.get(fault):
            self._answer(status, {}, b"<Error><Code>X</Code><Message>said by the store</Message></Error>")
        elif fault == "wrong checksum" and proxy.has_conditions:
            self._answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        elif fault == "redirect":
            self._answer(307, {"Location": "http://169.254.169.254/latest/meta-data/"}, b"")
        else:
            if fault == "slow":
                self.server.released.wait(15)
            self._answer(*self._upstream(), fault)

    def _upstream(self) -> tuple[int, dict[str, str], bytes]:
        proxy = self.server.proxy
        connection = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=20)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
        host = self.headers["host"]
        headers["Host"] = host if proxy.keeps_host else f"{host.partition(':')[0]}:{proxy.upstream}"
        connection.request(self.command, self.path, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}, content

    def _answer(self, status: int, headers: dict[str, str], content: bytes, fault: str = "") -> None:
        if fault == "wrong checksum":
            content = content[: len(content) // 2]
        size = len(content)
        if fault == "truncated":
            content = content[: size // 2]
        if len(content) < size:
            self.close_connection = True
        with contextlib.suppress(ConnectionError):  # the client gave up
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(size)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)

    def log_message(self, *_: Any) -> None:
        pass
