"""Files of the dashboard's pages, with a total size of about 250 KiB, and their security headers.

The files are read and compressed once. The page contains its style sheets and the theme script, so that the browser can
show it without further requests.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

INDEX = "index.html"
LIBRARY = "uplot/uPlot.esm.js"
"""Path of the chart library. It isn't in git, so wheels built from a fresh clone don't have it (scripts/wheel.py)."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_STYLE_SHEET = re.compile(r'<link rel="stylesheet" href="/static/([^"]+)">')
_SCRIPT = re.compile(r'<script src="/static/([^"]+)"></script>')
_POLICY = "Content-Security-Policy"


def _policy(scripts: str = "", styles: str = "") -> str:
    return (
        f"default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )


HEADERS = {
    _POLICY: _policy(),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response. The page has its own Content-Security-Policy, which allows its inlined texts."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file with its compressed form, media type and ETag."""

    body: bytes
    compressed: bytes
    kind: str
    tag: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that only this file has."""

    def response(self, request: web.Request) -> web.Response:
        """Return the response to a request for this file."""
        # Browsers must revalidate a file each time, so that an upgrade takes effect at once. An unchanged file is a 304 without a body.
        headers = {**self.headers, "ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        # A proxy that compresses the file marks its tag as weak.
        if self.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.compressed, content_type=self.kind, charset="utf-8", headers=headers)
        return web.Response(body=self.body, content_type=self.kind, charset="utf-8", headers=headers)


def page_files() -> dict[str, PageFile]:
    """Return the files by their paths in `static/`."""
    entries = _walk(resources.files("halcyon.dashboard").joinpath("static"))
    bodies = {path: entry.read_bytes() for path, entry in entries if _kind(path)}
    files = {path: _file(path, body) for path, body in bodies.items()}
    if INDEX in bodies:
        page, policy = inlined(bodies[INDEX].decode(), {path: body.decode() for path, body in bodies.items()})
        files[INDEX] = _file(INDEX, page.encode(), {_POLICY: policy})
    return files


def inlined(page: str, files: Mapping[str, str]) -> tuple[str, str]:
    """Return the page with inlined style sheets and blocking scripts, and the content security policy that allows them.

    A file that is not installed stays a link. JavaScript modules stay links, because they don't delay the first paint.
    """
    hashes: dict[str, list[str]] = {"script": [], "style": []}

    def inline(tag: str, match: re.Match[str]) -> str:
        text = files.get(match[1])
        if text is None:
            return match[0]
        hashes[tag].append(f" 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
        return f"<{tag}>{text}</{tag}>"

    page = _STYLE_SHEET.sub(lambda match: inline("style", match), page)
    page = _SCRIPT.sub(lambda match: inline("script", match), page)
    return page, _policy("".join(hashes["script"]), "".join(hashes["style"]))


def _file(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> PageFile:
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return PageFile(body, gzip.compress(body, mtime=0), _kind(path), tag, headers or {})


def _kind(path: str) -> str:
    return _TYPES.get(path.rpartition(".")[2], "")


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
