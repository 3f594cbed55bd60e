"""The real HAProxy 3.0 for tests: Debian 13's package, unpacked once into the cache and run in a chroot.

Tests with version 2.6 of Debian 12 would not prove anything about the version in the image.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from halcyon.balancer.config.haproxy_cfg import LUA
from halcyon.balancer.config.model import Listen, Ports
from halcyon.balancer.runtime.runtime_api import RuntimeSocket
from halcyon.render.balancer import MALLOC_CONF
from images.host import prepare
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = "3.0."


def root() -> Path:
    """Return the unpacked file tree, created on first use (3 s, 50 MiB). Requires root, because of chroot."""
    cache = Path(os.environ.get("HALCYON_CACHE") or Path.home() / ".cache" / "halcyon")
    cache.mkdir(parents=True, exist_ok=True)
    tree = cache / "haproxy-trixie"
    with (cache / "haproxy-trixie.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / "usr/sbin/haproxy").exists():
            prepare(cache)
            shutil.rmtree(tree, ignore_errors=True)
            partial = cache / "haproxy-trixie.part"
            shutil.rmtree(partial, ignore_errors=True)
            command = ["mmdebstrap", "--quiet", "--variant=extract", "--include=haproxy", "trixie", str(partial)]
            subprocess.run(command, check=True)
            partial.rename(tree)
        # `extract` runs no maintainer scripts, so the links of the merged /usr are missing.
        for name in ("lib", "lib64"):
            if not (tree / name).exists():
                (tree / name).symlink_to(f"usr/{name}")
        (tree / "tmp").mkdir(exist_ok=True)
    return tree


def check(text: str) -> str:
    """Return the output of `haproxy -c` for a configuration with socket /tmp/h.sock.

    It is empty if there are no errors or warnings.
    """
    tree = root()
    for name, lua in LUA.items():
        _put(tree / "tmp" / name, lua)
    with tempfile.NamedTemporaryFile("w", suffix=".cfg", dir=tree / "tmp") as file:
        file.write(text)
        file.flush()
        command = ["chroot", str(tree), "/usr/sbin/haproxy", "-c", "-f", "/tmp/" + Path(file.name).name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    problems = [line for line in (done.stdout + done.stderr).splitlines() if "[ALERT]" in line or "[WARNING]" in line]
    if done.returncode and not problems:
        problems = [f"rc {done.returncode}: {done.stderr}"]
    return "\n".join(problems)


def _put(path: Path, text: str) -> None:
    """Write the file atomically, because the HAProxy of another process may be reading it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as part:
        part.write(text)
    Path(part.name).rename(path)


class Haproxy:
    """A master and its worker, with their own folder."""

    def __init__(self, directory: Path, tree: Path) -> None:
        self.directory = directory
        self._tree = tree
        http, grpc, metrics, server_http, server_grpc = free_ports(5)
        self.ports = Ports(http, grpc, metrics, server_http, server_grpc)
        self.listen = Listen(self.ports, dual_stack=False, socket_path=str(directory / "haproxy.sock"))
        self.config = directory / "haproxy.cfg"
        self.runtime = self.runtime_of(self.ports)
        self._log = (directory / "log").open("wb")
        self.process: subprocess.Popen[bytes] | None = None
        self.user: list[str] = []
        """Options of chroot with the user to run as; empty: root."""

    def runtime_of(self, ports: Ports) -> RuntimeSocket:
        """Return the client of its sockets, with a long timeout for busy machines."""
        return RuntimeSocket(
            str(self.directory / "haproxy.sock"), str(self.directory / "master.sock"), ports, timeout_s=10.0
        )

    def start(self, *, port: int | None = None) -> None:
        """Start it, and wait until it listens at this port or at the HTTP port."""
        command = ["chroot", *self.user, str(self._tree), "/usr/sbin/haproxy", "-W", "-db"]
        command += ["-S", f"{self.directory}/master.sock", "-f", f"{self.directory}/haproxy.cfg"]
        environment = os.environ | {"MALLOC_CONF": MALLOC_CONF}
        self.process = subprocess.Popen(command, stderr=self._log, stdout=self._log, env=environment)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            master = str(self.directory / "master.sock")
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port or self.ports.http), 1),
                socket.socket(socket.AF_UNIX) as other,
            ):
                other.settimeout(1)
                other.connect(master)
                other.sendall(b"show version\n")
                # The master re-executes itself when its worker is started, and ignores signals until then.
                if other.recv(64):
                    return
            if self.process.poll() is not None:
                raise RuntimeError(f"HAProxy ended: {self.log_text()}")
            time.sleep(0.02)
        raise RuntimeError(f"HAProxy does not listen: {self.log_text()}")

    def log_text(self) -> str:
        return (self.directory / "log").read_text()

    def worker_exits(self) -> int:
        """Return the number of workers that ended other than by a reload or a stop."""
        return sum("exited with code" in line and "(Exit)" not in line for line in self.log_text().splitlines())

    def workers(self) -> list[str]:
        """Return the process IDs of the workers: one, and those that are still ending after a reload."""
        if self.process is None:
            return []
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def memory_kib(self) -> dict[str, int]:
        """Return the proportional set size of master and workers, in KiB.

        It counts shared pages once, as a pod's memory does.
        """
        if self.process is None:
            return {}
        pss_kib = {}
        for pid in [str(self.process.pid), *self.workers()]:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            pss_kib[pid] = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        return pss_kib

    def kill(self) -> None:
        """Kill master and worker at once, as in a crash."""
        if self.process is None or self.process.poll() is not None:
            return
        children = self.workers()
        self.process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        self.process.wait()
        self.process = None

    def close(self) -> None:
        self.kill()
        self._log.close()


@contextlib.contextmanager
def haproxy() -> Iterator[Haproxy]:
    """Yield a HAProxy that isn't started: write `config` first."""
    tree = root()
    inside = Path(tempfile.mkdtemp(prefix="halcyon-", dir=tree / "tmp"))
    # Use the same path inside and outside of the chroot, because both ends of a socket need the same name.
    directory = Path("/tmp") / inside.name
    directory.symlink_to(inside)
    server = Haproxy(directory, tree)
    try:
        yield server
    finally:
        server.close()
        directory.unlink()
        shutil.rmtree(inside, ignore_errors=True)
