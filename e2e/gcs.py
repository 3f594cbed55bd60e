"""A store that speaks the protocol of Google Cloud Storage, for tests: fake-gcs-server, built from its Go module. It checks no keys."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

BUCKET = "models"
_LIMIT_S = 20


@dataclass(frozen=True)
class Store:
    """A running store."""

    url: str
    """Its address, without a path."""

    def put(self, key: str, content: bytes) -> None:
        """Write an object of the bucket, by the JSON API."""
        _post(f"{self.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}", content)


@contextmanager
def running(program: Path, port: int, log: Path) -> Iterator[Store]:
    """Run a store with one bucket in memory on 127.0.0.1 while the block runs."""
    url = f"http://127.0.0.1:{port}"
    options = ["-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=memory", f"-public-host=127.0.0.1:{port}"]
    with log.open("wb") as output:
        process = subprocess.Popen([program, *options], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                _post(f"{url}/storage/v1/b?project=test", json.dumps({"name": BUCKET}).encode())
                break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"fake-gcs-server doesn't start: {log.read_text()[-500:]}") from None
                time.sleep(0.05)
        yield Store(url)
    finally:
        process.terminate()
        process.wait()


def _post(url: str, content: bytes) -> None:
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=_LIMIT_S).close()
