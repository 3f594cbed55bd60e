"""A real store that speaks S3, for tests: Versity's gateway on a folder of this machine, built from its Go module."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

BUCKET = "models"
ACCESS_KEY, SECRET_KEY = "halcyon-test-key", "halcyon-test-secret-canary"
_LIMIT_S = 20


@dataclass(frozen=True)
class Store:
    """A store that runs."""

    url: str
    """Its address, without a path."""

    def put(self, path: str, content: bytes) -> None:
        """An object: BUCKET/KEY. The bucket is there (see `arguments`)."""
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


def arguments(program: Path, listen: str, folder: Path, *more: str, bucket: str = BUCKET) -> list[str]:
    """The command line of a store that keeps everything in `folder` and has one bucket, at HOST:PORT."""
    (folder / "buckets" / bucket).mkdir(parents=True, exist_ok=True)
    (folder / "sidecar").mkdir(exist_ok=True)
    given = [f"--access={ACCESS_KEY}", f"--secret={SECRET_KEY}", f"--port={listen}", "--quiet", *more]
    # Beside the objects, not in attributes of their files: not every file system has those.
    return [str(program), *given, "posix", f"--sidecar={folder / 'sidecar'}", str(folder / "buckets")]


@contextmanager
def running(program: Path, port: int, folder: Path, *more: str, scheme: str = "http") -> Iterator[Store]:
    """A store on 127.0.0.1 while the block runs."""
    log = folder / "log"
    with log.open("wb") as output:
        command = arguments(program, f"127.0.0.1:{port}", folder, *more)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _wait(process, f"{scheme}://127.0.0.1:{port}", log)
        yield Store(f"{scheme}://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(_LIMIT_S)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + _LIMIT_S
    while not answers(url):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the store at {url} doesn't answer:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Whether something answers there, whatever it says."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        return "CERTIFICATE_VERIFY_FAILED" in str(error)
    except OSError:
        return False
    return True
