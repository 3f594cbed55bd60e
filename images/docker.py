"""A docker daemon of its own: Debian's, fetched and not installed, in one directory, for as long as it is asked for.

It makes no bridge and no firewall rule, so builds use the machine's network and containers have none.
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

_NEEDED = ("containerd", "runc")
"""Debian packages and programs of the same name; the daemon starts both."""
_START_WITHIN_S = 60.0
_END_WITHIN_S = 60.0
_LINES_OF_AN_ERROR = 15


@dataclass(frozen=True)
class Docker:
    """The client of a daemon that runs."""

    program: Path
    socket: Path

    def __call__(self, *arguments: str) -> str:
        """Run `docker ARGUMENTS`, builds by BuildKit as Docker 23 and newer do. Returns stdout.

        Raises:
            ImagesError: it failed; the message ends with its last lines.
        """
        done = subprocess.run(
            [self.program, "--host", f"unix://{self.socket}", *arguments],
            env={**os.environ, "DOCKER_BUILDKIT": "1", "DOCKER_CONFIG": str(self.socket.parent / "config")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            tail = "\n".join(done.stderr.decode(errors="replace").splitlines()[-_LINES_OF_AN_ERROR:])
            raise ImagesError(f"docker {arguments[0]}: failed with status {done.returncode}:\n{tail}")
        return done.stdout.decode().strip()


@contextmanager
def daemon(cache: Path) -> Iterator[Docker]:
    """Run a daemon in CACHE/docker, which is removed afterwards, and before where an earlier one was killed. One at a time.

    Raises:
        ImagesError: it can't be fetched, or doesn't start; the message has the end of its log.
    """
    try:
        if missing := [package for package in _NEEDED if shutil.which(package) is None]:
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
                _wait_until_it_answers(docker, running, home / "log")
                yield docker
            finally:
                running.terminate()
                running.wait(_END_WITHIN_S)
        finally:
            shutil.rmtree(home)


def _command(tree: Path, home: Path) -> list[str]:
    return [
        *("setpriv", "--pdeathsig=TERM", "--"),  # it ends with us, also where we are killed
        str(tree / "usr" / "sbin" / "dockerd"),
        *(f"--data-root={home}/data", f"--exec-root={home}/exec", f"--pidfile={home}/pid", f"--host=unix://{home}/socket"),
        *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"),
    ]  # fmt: skip


def _wait_until_it_answers(docker: Docker, running: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_WITHIN_S
    while True:
        try:
            docker("version")
        except ImagesError:
            if running.poll() is not None or time.monotonic() > until:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES_OF_AN_ERROR:])
                raise ImagesError(f"docker: the daemon doesn't answer; the end of its log:\n{tail}") from None
            time.sleep(0.2)
        else:
            return
