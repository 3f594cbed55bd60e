"""A real S3 store for tests: Versity's gateway on a local folder, built from its Go module."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store

BUCKET = "models"
ACCESS_KEY, SECRET_KEY = "halcyon-test-key", "halcyon-test-secret-canary"
_LIMIT_S = 20


@dataclass(frozen=True)
class Store:
    """A running store."""

    url: str
    """URL of the store, without a path."""

    def put(self, path: str, content: bytes) -> None:
        """Store an object at BUCKET/KEY. The bucket exists (see `arguments`)."""
        bucket, _, key = path.partition("/")
        store = S3Store(
            bucket,
            endpoint=self.url,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "allow_invalid_certificates": True},
        )
        obstore.put(store, key, content)

    def mark(self, folder: str) -> None:
        """Create BUCKET/FOLDER as web consoles do: an empty object whose key ends with a slash.

        The client library doesn't support this kind of key, so the request is signed here (AWS Signature Version 4,
        with only the path).
        """
        host, path = urlsplit(self.url).netloc, f"/{folder}/"
        timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        empty_digest = hashlib.sha256().hexdigest()
        signed = {"host": host, "x-amz-content-sha256": empty_digest, "x-amz-date": timestamp}
        names, lines = ";".join(signed), "".join(f"{name}:{value}\n" for name, value in signed.items())
        request_digest = hashlib.sha256(f"PUT\n{path}\n\n{lines}\n{names}\n{empty_digest}".encode()).hexdigest()
        scope = (timestamp[:8], "us-east-1", "s3", "aws4_request")
        key = f"AWS4{SECRET_KEY}".encode()
        for part in (*scope, f"AWS4-HMAC-SHA256\n{timestamp}\n{'/'.join(scope)}\n{request_digest}"):
            key = hmac.digest(key, part.encode(), "sha256")
        credential = f"{ACCESS_KEY}/{'/'.join(scope)}"
        signature = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
        headers = {**signed, "Authorization": signature, "Content-Length": "0"}
        request = urllib.request.Request(self.url + path, method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=_LIMIT_S).close()


def arguments(program: Path, listen: str, folder: Path, *extra: str, bucket: str = BUCKET) -> list[str]:
    """Return the command line of a store at HOST:PORT that keeps everything in `folder` and has one bucket."""
    (folder / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
    (folder / "sidecar").mkdir(exist_ok=True)
    options = [f"--access={ACCESS_KEY}", f"--secret={SECRET_KEY}", f"--port={listen}", "--quiet", *extra]
    # Store metadata in files next to the objects, because some file systems don't support extended attributes.
    return [str(program), *options, "posix", f"--sidecar={folder / 'sidecar'}", str(folder / "buckets")]


@contextmanager
def running(program: Path, port: int, folder: Path, *extra: str, scheme: str = "http") -> Iterator[Store]:
    """Run a store on 127.0.0.1 while the context is open."""
    log = folder / "log"
    with log.open("wb") as output:
        command = arguments(program, f"127.0.0.1:{port}", folder, *extra)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _wait(process, f"{scheme}://127.0.0.1:{port}", log)
        yield Store(f"{scheme}://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(_LIMIT_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the store at {url} doesn't answer:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Return True if a server responds at this URL, with any status."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        return "CERTIFICATE_VERIFY_FAILED" in str(error)
    except OSError:
        return False
    return True
