"""Files of the dashboard's pages, with a total size of about 250 KiB. They are read and compressed once."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

LIBRARY = "uplot/uPlot.esm.js"
"""Path of the chart library. It is not in git, so a wheel built from a plain clone does not contain it (scripts/wheel.py)."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file with its compressed form, media type and ETag."""

    body: bytes
    compressed: bytes
    kind: str
    tag: str

    def response(self, request: web.Request) -> web.Response:
        """Return the response to a request for this file."""
        # Browsers must revalidate a file each time, so that an upgrade takes effect at once. An unchanged file is a 304 without a body.
        headers = {"ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == self.tag:
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.compressed, content_type=self.kind, charset="utf-8", headers=headers)
        return web.Response(body=self.body, content_type=self.kind, charset="utf-8", headers=headers)


def page_files() -> dict[str, PageFile]:
    """Return the files by their path in `static/`."""
    files = {}
    for path, entry in _walk(resources.files("halcyon.dashboard").joinpath("static")):
        kind = _TYPES.get(path.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            files[path] = PageFile(body, gzip.compress(body, mtime=0), kind, tag)
    return files


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
