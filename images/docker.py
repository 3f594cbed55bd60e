"""Temporary docker daemon in its own directory, from Debian's packages, which are downloaded but not installed.

It creates neither a bridge nor firewall rules. Builds use the machine's network, and containers have no network.
"""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from images import apt
from images.host import ImagesError

_PACKAGES = ("containerd", "runc")
"""Debian packages that the daemon needs, each with a program of the same name, which the daemon starts."""
_START_WITHIN_S = 60.0
_END_WITHIN_S = 60.0
_LINES_OF_AN_ERROR = 15


@dataclass(frozen=True)
class Docker:
    """Client of the running daemon."""

    program: Path
    socket: Path

    def __call__(self, *arguments: str) -> str:
        """Run `docker ARGUMENTS`, and return its stdout. Builds use BuildKit, as in Docker 23 and newer.

        Raises:
            ImagesError: docker failed; the message ends with its last lines of output.
        """
        completed = subprocess.run(
            [self.program, "--host", f"unix://{self.socket}", *arguments],
            env={**os.environ, "DOCKER_BUILDKIT": "1", "DOCKER_CONFIG": str(self.socket.parent / "config")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if completed.returncode:
            tail = "\n".join(completed.stderr.decode(errors="replace").splitlines()[-_LINES_OF_AN_ERROR:])
            raise ImagesError(f"docker {arguments[0]}: failed with status {completed.returncode}:\n{tail}")
        return completed.stdout.decode().strip()


@contextmanager
def daemon(cache: Path) -> Iterator[Docker]:
    """Return a context manager that runs a daemon in CACHE/docker, only one at a time, and then removes this folder.

    A folder left by a killed process is removed first.

    Raises:
        ImagesError: the packages can't be downloaded, or the daemon doesn't start; the message has the end of its log.
    """
    try:
        if missing := [package for package in _PACKAGES if shutil.which(package) is None]:
            apt.install(missing)
        tree = apt.unpacked("docker.io", cache)
    except apt.AptError as error:
        raise ImagesError(str(error)) from None
    home = cache / "docker"
    with (cache / "docker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        try:
            with (home / "log").open("w") as log:
                running = subprocess.Popen(_command(tree, home), stdout=log, stderr=subprocess.STDOUT)
            try:
                docker = Docker(tree / "usr" / "bin" / "docker", home / "socket")
                _wait_until_ready(docker, running, home / "log")
                yield docker
            finally:
                running.terminate()
                running.wait(_END_WITHIN_S)
        finally:
            shutil.rmtree(home)


def _command(tree: Path, home: Path) -> list[str]:
    return [
        *("setpriv", "--pdeathsig=TERM", "--"),  # the daemon ends with this process, even if this is killed
        str(tree / "usr" / "sbin" / "dockerd"),
        *(f"--data-root={home}/data", f"--exec-root={home}/exec", f"--pidfile={home}/pid", f"--host=unix://{home}/socket"),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"),
    ]  # fmt: skip


def _wait_until_ready(docker: Docker, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_WITHIN_S
    while True:
        try:
            docker("version")
        except ImagesError:
            if running.poll() is not None or time.monotonic() > deadline_s:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES_OF_AN_ERROR:])
                raise ImagesError(f"docker: the daemon doesn't answer; the end of its log:\n{tail}") from None
            time.sleep(0.2)
        else:
            return
