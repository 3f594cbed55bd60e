"""Debian packages that image builds, the test cluster and tests need, either installed or only unpacked. Needs apt-get.

Out of scope: which packages these are.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


class AptError(Exception):
    """Packages can't be installed. The message has their names, and the command for installing them manually."""


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, without their recommended packages.

    Raises:
        AptError: there is no apt-get, or it failed.
    """
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    missing = f"missing: {', '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise AptError(f"{missing}, and there is no apt-get; on Debian: {command}")
    for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        completed = subprocess.run(
            ["apt-get", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if completed.returncode:
            raise AptError(
                f"{missing}; `apt-get {arguments[0]}` failed: {completed.stderr.strip()[-500:]}\nInstall by hand: {command}"
            )


def unpacked(package: str, cache: Path) -> Path:
    """Return the unpacked files of a Debian package, downloaded into `cache` but not installed.

    Therefore no service of the package starts, and the machine isn't changed. There is one folder per version. A new
    one is created if apt would now download another version.

    Raises:
        AptError: there is no apt-get, the package doesn't exist, or the download failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree = cache / f"{package}-{_candidate(package)}"
        if not tree.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{package}.part-") as scratch:
                _fetch(package, Path(scratch))
                [archive] = Path(scratch).glob("*.deb")
                _run(package, ["dpkg-deb", "-x", archive.name, "tree"], Path(scratch))
                (Path(scratch) / "tree").rename(tree)
    return tree


def _candidate(package: str) -> str:
    """Return the version that apt would download. If the package is unknown, update the package lists first."""
    if shutil.which("apt-get") is None:
        raise AptError(f"missing: {package}, and there is no apt-get; on Debian: apt-get download {package}")
    for _ in range(2):
        output = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True, check=False
        )
        for line in output.stdout.splitlines():
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
        _run(package, ["apt-get", "update", "-qq"])
    raise AptError(f"missing: {package}, and apt knows no such package; on Debian: apt-get download {package}")


def _fetch(package: str, directory: Path) -> None:
    download = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
    try:
        _run(package, download, directory)
    except AptError:
        # The package list is older than the archive.
        _run(package, ["apt-get", "update", "-qq"])
        _run(package, download, directory)


def _run(package: str, command: Sequence[str], directory: Path | None = None) -> None:
    completed = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if completed.returncode:
        raise AptError(f"missing: {package}; `{' '.join(command[:2])}` failed: {completed.stderr.strip()[-500:]}")
