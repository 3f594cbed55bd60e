"""An API server with prepared responses, over real HTTP on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

ABSENT = "404 page not found\n"
"""Response of a real API server for an unknown group."""


@dataclass
class Api:
    """An API server.

    `answers` has (status, body) by path without query; other paths give the response for an unknown group.
    """

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Requests as (method, path)."""
    bodies: list[bytes] = field(default_factory=list)
    """Contents of the requests that have one."""


def failure(code: int, message: str) -> tuple[int, Any]:
    """Return an error as an API server reports it."""
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@contextmanager
def serving() -> Iterator[Api]:
    """Run an API server while the context is open."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            api.requests.append((self.command, self.path))
            code, body = api.answers.get(self.path.partition("?")[0], (404, ABSENT))
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_PATCH()

        def do_PATCH(self) -> None:
            api.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.do_GET()

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Suppress the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
