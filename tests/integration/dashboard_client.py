"""An HTTP client of the dashboard, with a local address and credentials."""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def body(self) -> Object:
        """Return the body parsed as JSON."""
        document: Object = json.loads(self.text)
        return document


@dataclass(frozen=True)
class Reader:
    """One client. The operator's certificate is not verified, because it has its own CA for the metrics API."""

    port: int
    tls: bool = False
    source: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, *, method: str = "GET", body: object = None, **headers: str) -> Answer:
        """Send one request."""
        with contextlib.closing(self._connect()) as connection:
            sent = None if body is None else json.dumps(body)
            kind = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, sent, kind | self.headers | headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.msg, answer.read().decode())

    @contextlib.contextmanager
    def events(self, path: str) -> Iterator[Iterator[tuple[str, Object]]]:
        """Yield (name, document) of the events of a stream as they arrive."""
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["Content-Type"] == "text/event-stream"
            with contextlib.closing(answer):
                yield _events(answer)

    def _connect(self) -> http.client.HTTPConnection:
        address = (self.source, 0)
        if not self.tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=address)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, source_address=address, context=context)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Object]]:
    name = ""
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
