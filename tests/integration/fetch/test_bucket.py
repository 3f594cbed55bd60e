"""What a download makes of a bucket: files, folders by their markers, and refusals by name."""

from __future__ import annotations

import http.server
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from halcyon.api.documents.download_progress import DownloadProgress
from halcyon.fetch.download import Remote, download
from halcyon.fetch.errors import FetchError, SourceError, StoreError

_OBJECT = "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>{}</Size></Contents>"
_FOLDER = "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>"
_LISTING = "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{}</ListBucketResult>"


@contextmanager
def bucket(files: dict[str, bytes], failure: tuple[int, str] | None = None) -> Iterator[Remote]:
    """A store with one bucket, `b`, by the rules of S3; what a gateway on a file system can't hold, too.

    With `failure`, it answers all requests with this status and body.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if failure is not None:
                self.send_response(failure[0])
                self.send_header("Content-Length", str(len(failure[1])))
                self.end_headers()
                self.wfile.write(failure[1].encode())
                return
            url = urlsplit(self.path)
            key = url.path.removeprefix("/b").removeprefix("/")
            body = files[key] if key else listing(dict(parse_qsl(url.query)), files).encode()
            begin, _, end = self.headers.get("Range", f"bytes=0-{len(body) - 1}").removeprefix("bytes=").partition("-")
            content = body[int(begin) : int(end) + 1]
            self.send_response(206 if key else 200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(body)}")
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Remote("s3://b/m", endpoint=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listing(query: dict[str, str], files: dict[str, bytes]) -> str:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
    entries: dict[str, str] = {}
    for key, content in sorted(files.items()):
        if key.startswith(prefix):
            head, _, rest = key.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            if delimiter and (rest or key.endswith(delimiter)) and head:
                entries[head] = _FOLDER.format(f"{prefix}{head}{delimiter}")
            else:
                entries[key] = _OBJECT.format(key, len(content))
    return _LISTING.format("".join(entries.values()))


def brought(files: dict[str, bytes], to: Path) -> dict[str, bytes | None]:
    """What a download of the folder `m` makes: files with their content, folders with None."""
    with bucket(files) as remote:
        download(remote, to, lambda _: None, lambda _: True)
    return {str(path.relative_to(to)): path.read_bytes() if path.is_file() else None for path in sorted(to.rglob("*"))}


CASES: dict[str, tuple[dict[str, bytes], dict[str, bytes | None]]] = {
    "a console's folders": (
        {"m/": b"", "m/1/": b"", "m/1/model.py": b"x", "m/config.pbtxt": b"c"},
        {"1": None, "1/model.py": b"x", "config.pbtxt": b"c"},
    ),
    "Hadoop's": (
        {"m/_$folder$": b"", "m/1_$folder$": b"", "m/1/a_$folder$": b"", "m/2_$folder$": b"", "m/1/model.py": b"x"},
        {"1": None, "1/a": None, "1/model.py": b"x", "2": None},
    ),
    "without a slash, as older tools make them": (
        {"m/1": b"", "m/1/a": b"", "m/1/a/b.bin": b"x"},
        {"1": None, "1/a": None, "1/a/b.bin": b"x"},
    ),
    "an empty version folder, and empty files": (
        {"m/1/": b"", "m/a/": b"", "m/a/b/": b"", "m/a/__init__.py": b"", "m/labels": b"", "m/config.pbtxt": b"c"},
        {"1": None, "a": None, "a/b": None, "a/__init__.py": b"", "labels": b"", "config.pbtxt": b"c"},
    ),
    "a file with the name of the model's folder": (
        {"m/": b"", "m/1/model.py": b"x", "m/m": b"y"},
        {"1": None, "1/model.py": b"x", "m": b"y"},
    ),
    "a marker beside a file with content": (
        {"m/1/model.py": b"x", "m/1/model.py/": b"", "m/a": b"y", "m/a_$folder$": b""},
        {"1": None, "1/model.py": b"x", "a": b"y"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_object_that_marks_a_folder_becomes_one(name: str, tmp_path: Path) -> None:
    files, expected = CASES[name]

    assert brought(files, tmp_path) == expected


@pytest.mark.parametrize("other", ["m/1/model.py", "m/1/model.py/weights.bin", "m/1/"])
def test_a_file_and_a_folder_of_one_name_are_refused_by_name(other: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error:
        brought({"m/config.pbtxt": b"c", "m/1": b"content", other: b"x"}, tmp_path)

    assert str(error.value) == (
        f"s3://b/m/1 and s3://b/{other} conflict: a file and a folder can't have the same name. Remove or rename one of them, for "
        "example 1 to 1.old"
    )


def test_a_name_longer_than_a_file_name_may_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"1/n{78}\.\.\. in the model's source can't be written: a name may have at most 255 bytes"
    ):
        brought({f"m/1/{'n' * 300}": b"x"}, tmp_path)


def test_a_folder_of_markers_alone_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="s3://b/m is empty"):
        brought({"m/": b"", "m/1/": b""}, tmp_path)


def test_an_executable_format_gets_its_execute_bit(tmp_path: Path) -> None:
    large = b"#!/bin/sh\n" + b" " * (9 * 2**20)
    files = {
        "triton_python_backend_stub": b"\x7fELF\x02",
        "1/run.sh": large,
        "1/model.py": b"import os\n",
        "1/two": b"#!",
        "1/one": b"#",
    }
    brought({f"m/{name}": content for name, content in files.items()}, tmp_path)

    runs = {
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o111
    }
    assert runs == {"triton_python_backend_stub", "1/run.sh", "1/two"}


def test_progress_of_a_bucket_begins_with_the_size_of_all_files(tmp_path: Path) -> None:
    progress: list[DownloadProgress] = []
    with bucket({"m/1/model.py": b"12345", "m/config.pbtxt": b"c"}) as remote:
        download(remote, tmp_path, progress.append, lambda _: True)
    assert progress == [DownloadProgress(0, 6)]


_ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"


@pytest.mark.parametrize(
    ("status", "body", "problem", "good"),
    [
        (
            301,
            _ERROR.format("PermanentRedirect", "address it at the endpoint"),
            "another region",
            "region: eu-central-1",
        ),
        (
            400,
            _ERROR.format("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-1'"),
            "the bucket is in another region than spec.model.source.region, which is us-east-1 if it is not set",
            "region: eu-west-1",
        ),
        (
            400,
            _ERROR.format("ExpiredToken", "The provided token has expired."),
            "AWS_SESSION_TOKEN of the Secret that spec.model.source.credentials.secretName names",
            "the temporary credentials have expired",
        ),
    ],
)
def test_an_error_of_the_store_names_the_field_to_change(
    status: int, body: str, problem: str, good: str, tmp_path: Path
) -> None:
    with bucket({}, (status, body)) as remote, pytest.raises(StoreError, match="s3://b/m: ") as raised:
        download(remote, tmp_path, lambda _: None, lambda _: True)

    assert problem in str(raised.value)
    assert good in str(raised.value)


def test_a_full_disk_is_reported_with_the_model_and_a_field(tmp_path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Python's own default
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, hard))
    try:
        with bucket({"m/1/model.onnx": bytes(1024 * 1024)}) as remote, pytest.raises(FetchError) as raised:
            download(remote, tmp_path, lambda _: None, lambda _: True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert raised.value.reason == "FetchFailed"
    assert str(raised.value).startswith("s3://b/m: the disk of the pod's node can't store the model: File too large. ")
    assert "spec.runtime.resources.requests.ephemeral-storage: 40Gi" in str(raised.value)
