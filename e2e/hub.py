"""A stand-in for the Hugging Face Hub, for tests: the part of its HTTP interface that downloads use.

It serves repositories at commits: the listing of a tree in pages, and files. Files in Git LFS are on another host, to which it redirects
with a signature in the query. Private and gated repositories need a token. Errors have the hub's headers X-Error-Code and
X-Error-Message.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

HOST, CONTENT_HOST = "hub.localhost", "cdn.hub.localhost"
"""Hosts of the hub and of the contents in Git LFS. Tests resolve both to 127.0.0.1."""
TOKEN, EXPIRED = "hf_halcyonTestCanaryToken", "hf_halcyonTestCanaryExpired"
_PAGE = 3
"""Entries per page. The hub has 1,000, and a model for tests has fewer."""
_SIGNATURE = "Signature=canary"


def commit(repository: str) -> str:
    """Return the commit of a repository."""
    return hashlib.sha1(repository.encode(), usedforsecurity=False).hexdigest()


@dataclass
class Hub:
    """A running hub."""

    port: int = 0
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files of each repository at its commit."""
    access: dict[str, str] = field(default_factory=dict)
    """`private` or `gated`, by repository; others are public."""
    fault: str = ""
    """Fault of the content of files in Git LFS: `slow`, `truncated`, `damaged`, `gone`, `denied`, `expired` or `redirect`."""
    busy_until: float = 0.0
    """Monotonic time until which the hub answers 429, because there were too many requests."""
    unavailable: int = 0
    """Number of the next requests that are answered with 503. Like every answer of the hub, these have `RateLimit`."""
    cut_listings: int = 0
    """Number of the next listings that end in the middle."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Host, path and header `Authorization` of each request."""

    @property
    def url(self) -> str:
        """URL of the hub."""
        return f"http://{HOST}:{self.port}"

    def put(self, repository: str, files: dict[str, bytes], access: str = "") -> str:
        """Create a repository; return its URI with the commit."""
        self.repositories[repository] = files
        self.access[repository] = access
        return f"hf://{repository}@{commit(repository)}"


def _is_large(path: str) -> bool:
    return path.endswith((".bin", ".onnx"))


def _entry(path: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    entry = {"type": "file", "oid": blob, "size": len(content), "path": path}
    if _is_large(path):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


class _Server(http.server.ThreadingHTTPServer):
    """Server of a hub."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.released = threading.Event()
        """Set when slow responses may end."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        host = self.headers["host"].partition(":")[0]
        self.server.hub.requests.append((host, path, self.headers.get("authorization", "")))
        if host == CONTENT_HOST:
            self._content(path, url.query)
            return
        if (remaining_s := self.server.hub.busy_until - time.monotonic()) > 0:
            headers = {"RateLimit": f'"api";r=0;t={math.ceil(remaining_s)}'}
            self._send(429, b"We had to rate limit your IP", headers)
            return
        if self.server.hub.unavailable:
            self.server.hub.unavailable -= 1
            self._send(503, b"Service unavailable", {"RateLimit": '"api";r=480;t=250'})
            return
        repository, revision, place = _parsed(path)
        if (denied := self._denied(repository, revision)) is not None:
            self._refuse(*denied)
        elif path.startswith("/api/"):
            self._tree(repository, place, parse_qs(url.query))
        else:
            self._file(repository, place)

    def _denied(self, repository: str, revision: str) -> tuple[int, str, str] | None:
        authorization = self.headers.get("authorization", "")
        access = self.server.hub.access.get(repository)
        if authorization and authorization != f"Bearer {TOKEN}":
            return 401, "", f"User Access Token {authorization.removeprefix('Bearer ')} is expired"
        if access is None or (access == "private" and not authorization):
            return (
                (404, "RepoNotFound", "Repository not found")
                if authorization
                else (401, "RepoNotFound", "Invalid username or password.")
            )
        if access == "gated":
            return (403 if authorization else 401), "GatedRepo", f"Access to model {repository} is restricted"
        if access == "denied":
            return 403, "", "the fine-grained token has no read access"
        return None if revision == commit(repository) else (404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _tree(self, repository: str, place: str, query: dict[str, list[str]]) -> None:
        files = self.server.hub.repositories[repository]
        entries = [_entry(path, files[path]) for path in sorted(files) if path.startswith(f"{place}/" if place else "")]
        if not entries and place:
            self._refuse(404, "EntryNotFound", f"{place} does not exist")
            return
        folders = sorted({path.rpartition("/")[0] for path in files} - {""})
        entries = [*({"type": "directory", "oid": "", "size": 0, "path": path} for path in folders), *entries]
        begin = int(query.get("cursor", ["0"])[0])
        headers = {}
        if begin + _PAGE < len(entries):
            target = f"{self.server.hub.url}{quote(urlsplit(self.path).path)}?recursive=true&cursor={begin + _PAGE}"
            headers["Link"] = f'<{target}>; rel="next"'
        content = json.dumps(entries[begin : begin + _PAGE]).encode()
        is_cut, self.server.hub.cut_listings = self.server.hub.cut_listings > 0, self.server.hub.cut_listings - 1
        self._send(200, content, headers, cut_at=len(content) // 2 if is_cut else None)

    def _file(self, repository: str, place: str) -> None:
        content = self.server.hub.repositories[repository].get(place)
        if content is None:
            self._refuse(404, "EntryNotFound", f"{place} does not exist")
        elif not _is_large(place):
            self._send(200, content, {"X-Repo-Commit": commit(repository)})
        elif self.server.hub.fault == "redirect":
            self._send(302, b"", {"Location": "http://169.254.169.254/latest/meta-data/"})
        else:
            location = f"http://{CONTENT_HOST}:{self.server.hub.port}/{repository}/{quote(place)}?{_SIGNATURE}"
            self._send(302, b"", {"Location": location, "X-Linked-Size": str(len(content))})

    def _content(self, path: str, query: str) -> None:
        owner, name, place = path.lstrip("/").split("/", 2)
        content = self.server.hub.repositories[f"{owner}/{name}"][place]
        status = {"gone": 404, "denied": 403, "expired": 401}.get(
            self.server.hub.fault, 200 if query == _SIGNATURE else 403
        )
        if status != HTTPStatus.OK:
            self._send(status, b"<Error><Message>said by the store</Message></Error>")
            return
        if self.server.hub.fault == "damaged":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.server.hub.fault == "slow":
            self.server.released.wait(15)
        begin = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        end = begin + len(content) // 4 if self.server.hub.fault in {"truncated", "interrupted"} else len(content)
        if self.server.hub.fault == "truncated":
            end = min(end, len(content) // 2)
        self._send(206 if begin else 200, content[begin:], headers, cut_at=max(0, end - begin))

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, json.dumps({"error": message}).encode(), {"X-Error-Code": code, "X-Error-Message": message})

    def _send(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, cut_at: int | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content if cut_at is None else content[:cut_at])
        if cut_at is not None and cut_at < len(content):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def _parsed(path: str) -> tuple[str, str, str]:
    """Return repository, revision and path in it from `/api/models/O/R/tree/REVISION/PATH` or `/O/R/resolve/REVISION/PATH`."""
    owner, name, _, revision, *place = path.removeprefix("/api/models").lstrip("/").split("/")
    return f"{owner}/{name}", revision, "/".join(place)


@contextmanager
def running() -> Iterator[Hub]:
    """Run a hub without repositories on 127.0.0.1 while the block runs."""
    hub = Hub()
    server = _Server(hub)
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
