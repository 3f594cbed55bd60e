"""Archives from web servers that people have: Python's own, and those that send no size, repeat an error, redirect or stall."""

from __future__ import annotations

import functools
import http.server
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import StoreError
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports

FILES = {"m/1/model.py": b"x", "m/config.pbtxt": b"c"}


def packed(mode: str = "w:gz", form: int = tarfile.PAX_FORMAT, prefix: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=form) as archive:  # type: ignore[call-overload]  # any mode
        for name, content in FILES.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def brought(url: str, to: Path) -> dict[str, bytes]:
    download(Remote(url), to, lambda _: None, lambda _: True)
    return {str(path.relative_to(to)): path.read_bytes() for path in to.rglob("*") if path.is_file()}


class Odd(http.server.BaseHTTPRequestHandler):
    """A server whose behaviour is the name of the archive."""

    protocol_version = "HTTP/1.1"
    tries = 0

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        getattr(self, self.path.rpartition("/")[2].removesuffix(".tar.gz"))()

    def head(self, status: int, **headers: Any) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def whole(self) -> None:
        content = packed()
        self.head(200, Content_Length=len(content))
        self.wfile.write(content)

    def without_size(self) -> None:
        self.head(200, Transfer_Encoding="chunked")
        content = packed()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

    def busy_twice(self) -> None:
        Odd.tries += 1
        if Odd.tries < 3:
            self.head(503, Content_Length=0)
        else:
            self.whole()

    def moved(self) -> None:
        self.head(302, Location="/whole.tar.gz", Content_Length=0)

    def moved_before_a_pause(self) -> None:
        """Respond without a header that the connection closes, and close it later."""
        self.moved()
        self.wfile.flush()
        time.sleep(0.3)

    def cut(self) -> None:
        self.head(200, Content_Length=10_000)
        self.wfile.write(packed()[:60])
        self.close_connection = True


def test_pythons_own_server_is_good_enough(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "m.tar.gz").write_bytes(packed())
    (tmp_path / "to").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with serving(functools.partial(Quiet, directory=str(tmp_path / "site"))) as url:
        assert brought(f"{url}/m.tar.gz", tmp_path / "to") == FILES


@pytest.mark.parametrize("name", ["whole", "busy_twice", "moved", "moved_before_a_pause"])
def test_an_archive_arrives(name: str, tmp_path: Path) -> None:
    Odd.tries = 0
    with serving(Odd) as url:
        assert brought(f"{url}/{name}.tar.gz", tmp_path) == FILES


def test_progress_of_an_archive_begins_with_its_size(tmp_path: Path) -> None:
    progress: list[DownloadProgress] = []
    with serving(Odd) as url:
        download(Remote(f"{url}/whole.tar.gz"), tmp_path, progress.append, lambda _: True)
    assert progress == [DownloadProgress(0, len(packed()))]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("without_size", "the server doesn't send the archive's size (Content-Length)"),
        ("cut", "request or response body error"),
    ],
)
def test_an_archive_that_cannot_arrive_is_named(name: str, message: str, tmp_path: Path) -> None:
    with serving(Odd) as url, pytest.raises(StoreError) as error:
        brought(f"{url}/{name}.tar.gz", tmp_path)
    assert str(error.value).startswith(f"{url}/{name}.tar.gz: ")
    assert message in str(error.value)


@pytest.mark.parametrize("form", ["w:", "w:gz", "w:bz2", "w:xz", "gnu", "ustar"])
def test_archives_of_every_common_form_arrive(form: str, tmp_path: Path) -> None:
    forms = {"gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT}
    content = packed(form if form not in forms else "w:gz", forms.get(form, tarfile.PAX_FORMAT), "./")

    class Form(Odd):
        def whole(self) -> None:
            self.head(200, Content_Length=len(content))
            self.wfile.write(content)

    with serving(Form) as url:
        assert brought(f"{url}/whole.tar.gz", tmp_path) == FILES


@pytest.mark.more
def test_a_download_that_stands_still_ends_with_an_error(tmp_path: Path) -> None:
    is_over = threading.Event()

    class Stalls(Odd):
        def whole(self) -> None:
            self.head(200, Content_Length=10_000)
            self.wfile.write(packed()[:60])
            self.wfile.flush()
            is_over.wait(300)

    began = time.monotonic()
    with serving(Stalls) as url:
        with pytest.raises(StoreError, match=r"whole\.tar\.gz: "):
            brought(f"{url}/whole.tar.gz", tmp_path)
        is_over.set()
    assert 25 <= time.monotonic() - began < 30 * PATIENCE
