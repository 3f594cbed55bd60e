"""The real Prometheus for tests, and small web servers for it.

It is Debian's package, unpacked into the cache; nothing is installed, and no service starts.
"""

import contextlib
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from typing_extensions import override

from e2e.cluster.places import cache
from images.apt import unpacked
from tests.integration.waiting import PATIENCE, until
from tests.ports import free_ports

_CONFIG = {"global": {"scrape_interval": "1s"}}


def programs() -> Path:
    """Return the folder with `prometheus` and `promtool`, which is downloaded on first use (20 MB)."""
    return unpacked("prometheus", cache()) / "usr" / "bin"


Answer = Callable[[str, Message], tuple[int, str]]
"""Function from (path, headers) to (status, body)."""


@contextlib.contextmanager
def served(answer: Answer) -> Iterator[str]:
    """Start a web server on loopback in a thread, and yield HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer(self.path, self.headers)
            self.send_response(status)
            # Content type for Prometheus; without it, version 3 parses a metrics page in a different format.
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class TokenGate:
    """An authenticating proxy: requests with the token reach the Prometheus behind it."""

    behind: str
    token: str

    def __call__(self, path: str, headers: Message) -> tuple[int, str]:
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, "who are you?\n"
        with urllib.request.urlopen(f"http://{self.behind}{path}", timeout=5 * PATIENCE) as answer:
            return 200, answer.read().decode()


class Prometheus:
    """A Prometheus process that can be killed, and started again at the same address with the same data."""

    def __init__(self, directory: Path, scrape_configs: Sequence[object], *, web: object = None) -> None:
        self.directory, self._web = directory, web
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.data = directory / "data"
        (directory / "prometheus.yml").write_text(yaml.safe_dump({**_CONFIG, "scrape_configs": scrape_configs}))
        self._process: subprocess.Popen[bytes] | None = None

    def backfill(self, open_metrics: str) -> None:
        """Add samples from the past to its data, before it starts."""
        (self.directory / "past").write_text(open_metrics)
        command = [
            str(programs() / "promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--max-block-duration=720h",
        ]
        subprocess.run(
            [*command, "--quiet", "past", str(self.data)], cwd=self.directory, check=True, capture_output=True
        )

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = [
            # It must end even if the test run is killed.
            *("setpriv", "--pdeathsig=KILL", str(programs() / "prometheus"), f"--web.listen-address={self.address}"),
            *(f"--config.file={self.directory}/prometheus.yml", f"--storage.tsdb.path={self.data}"),
            "--storage.tsdb.retention.time=60d",
        ]
        if self._web is not None:
            (self.directory / "web.yml").write_text(yaml.safe_dump(self._web))
            command.append(f"--web.config.file={self.directory}/web.yml")
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._ready, bool, goal="Prometheus is ready", limit_s=20, context=self.log_tail)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log_tail()
        if self._web is not None:
            return "Server is ready" in self.log_tail()
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=1 * PATIENCE),
        ):
            return True
        return False

    def log_tail(self) -> str:
        return (self.directory / "log").read_text()[-3000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def prometheus(scrape_configs: Sequence[object], *, past: str = "", web: object = None) -> Iterator[Prometheus]:
    """Run a Prometheus in a temporary folder."""
    directory = Path(tempfile.mkdtemp(prefix="halcyon-prometheus-"))
    server = Prometheus(directory, scrape_configs, web=web)
    try:
        if past:
            server.backfill(past)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)
