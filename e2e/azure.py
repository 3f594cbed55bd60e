"""A store that speaks the protocol of Azure Blob Storage, for tests: a stand-in of this project's own, or Azurite if there is one.

The stand-in checks the signatures of requests (Shared Key, and the expiry of a SAS), lists containers and serves ranges. With
HALCYON_AZURITE, the path of `azurite-blob`, Microsoft's emulator takes its place; its npm package has some 300 others, so no build of
the project installs it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

ACCOUNT, CONTAINER = "halcyontests", "models"
KEY = base64.b64encode(b"halcyon-test-account-key-canary!" * 2).decode()
HOST = f"{ACCOUNT}.blob.localhost"
"""The account's host. Tests resolve it to 127.0.0.1."""
ACCESS_TOKEN = "halcyon-test-access-token-canary"
"""Token of an identity that may read the container."""
_VERSION = "2021-08-06"
_LIMIT_S = 20
_SIGNED = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since",
           "if-match", "if-none-match", "if-unmodified-since", "range")  # fmt: skip


def _signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def _shared_key(method: str, target: str, headers: dict[str, str]) -> str:
    """Return the header `Authorization` of a request; names of headers are in lower case."""
    url = urlsplit(target)
    plain = [headers.get(name, "") for name in _SIGNED]
    plain[2] = "" if plain[2] == "0" else plain[2]
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
    query = [f"{name.lower()}:{value}" for name, value in sorted(parse_qsl(url.query))]
    resource = "\n".join([f"/{ACCOUNT}{url.path}", *query])
    return f"SharedKey {ACCOUNT}:{_signature(chr(10).join([method, *plain, *own, resource]))}"


def sas(*, valid_for: timedelta) -> str:
    """Return a shared access signature to read and list the container; with a negative time, an expired one."""
    now = datetime.now(UTC)
    start, end = (f"{time_:%Y-%m-%dT%H:%M:%SZ}" for time_ in (now - timedelta(days=2), now + valid_for))
    fields = ["rl", start, end, f"/blob/{ACCOUNT}/{CONTAINER}", "", "", "", _VERSION, "c", *[""] * 7]
    parameters = {"sv": _VERSION, "st": start, "se": end, "sr": "c", "sp": "rl", "sig": _signature("\n".join(fields))}
    return urlencode(parameters)


@dataclass(frozen=True)
class Store:
    """A running store."""

    port: int

    @property
    def url(self) -> str:
        """The account's address, without a path."""
        return f"http://{HOST}:{self.port}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object of the container."""
        self._put(f"/{CONTAINER}/{quote(key)}", content, {"x-ms-blob-type": "BlockBlob"})

    def create(self) -> None:
        """Create the container."""
        self._put(f"/{CONTAINER}?restype=container", b"", {})

    def _put(self, target: str, content: bytes, extra_headers: dict[str, str]) -> None:
        headers = {**extra_headers, "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True), "x-ms-version": _VERSION,
                   "content-length": str(len(content)), "content-type": "application/octet-stream", "host": f"{HOST}:{self.port}"}  # fmt: skip
        headers["authorization"] = _shared_key("PUT", target, headers)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{target}", content, headers, method="PUT")
        urllib.request.urlopen(request, timeout=_LIMIT_S).close()


@contextmanager
def running(port: int, folder: Path) -> Iterator[Store]:
    """Run a store with one container on 127.0.0.1 while the block runs."""
    azurite = os.environ.get("HALCYON_AZURITE")
    with _azurite(azurite, port, folder) if azurite else _stand_in(port):
        store = Store(port)
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                store.create()
                break
            except urllib.error.HTTPError:
                raise
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield store


@contextmanager
def _azurite(program: str, port: int, folder: Path) -> Iterator[None]:
    options = ["--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    process = subprocess.Popen([program, *options, "--skipApiVersionCheck"], env=environment, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _stand_in(port: int) -> Iterator[None]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _handler({}))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _listing(objects: dict[str, bytes], query: dict[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    entries: dict[str, str] = {}
    for key, content in sorted(objects.items()):
        head, separator, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
        if key.startswith(prefix) and separator:
            entries[head] = f"<BlobPrefix><Name>{prefix}{head}{delimiter}</Name></BlobPrefix>"
        elif key.startswith(prefix):
            entries[key] = (
                f"<Blob><Name>{key}</Name><Properties><Last-Modified>Sat, 21 Nov 2026 00:00:00 GMT</Last-Modified><Etag>{_etag(content)}</Etag>"
                f"<Content-Length>{len(content)}</Content-Length><Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            )
    return f"<EnumerationResults><Blobs>{''.join(entries.values())}</Blobs><NextMarker/></EnumerationResults>".encode()


def _handler(objects: dict[str, bytes]) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: C901  # one class
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self._denied():
                return
            url = urlsplit(self._target())
            if "restype" not in url.query:
                objects[unquote(url.path).removeprefix(f"/{CONTAINER}/")] = content
            self._answer(201, b"")

        def do_GET(self) -> None:
            if self._denied():
                return
            url = urlsplit(self._target())
            query = dict(parse_qsl(url.query))
            if query.get("comp") == "list":
                self._answer(200, _listing(objects, query))
                return
            content = objects.get(unquote(url.path).removeprefix(f"/{CONTAINER}/"))
            if content is None:
                self._error(404, "BlobNotFound", "The specified blob does not exist.")
            elif self.headers.get("if-match", _etag(content)) != _etag(content):
                self._error(
                    412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."
                )
            else:
                begin, _, end = (
                    self.headers.get("range", f"bytes=0-{len(content) - 1}").removeprefix("bytes=").partition("-")
                )
                part = content[int(begin) : int(end) + 1]
                self._answer(
                    206, part, {"ETag": _etag(content), "Content-Range": f"bytes {begin}-{end}/{len(content)}"}
                )

        def _target(self) -> str:
            return "/" + self.path.partition("://")[2].partition("/")[2] if "://" in self.path else self.path

        def _denied(self) -> bool:
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = dict(parse_qsl(urlsplit(self._target()).query))
            if authorization := headers.pop("authorization", ""):
                is_valid = authorization in {
                    _shared_key(self.command, self._target(), headers),
                    f"Bearer {ACCESS_TOKEN}",
                }
            else:
                is_valid = query.get("se", "") > f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            if not is_valid:
                self._error(403, "AuthenticationFailed", "Server failed to authenticate the request.")
            return not is_valid

        def _error(self, status: int, code: str, message: str) -> None:
            self._answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

        def _answer(self, status: int, content: bytes, extra_headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {
                "Content-Length": str(len(content)),
                "Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT",
                **(extra_headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
