"""Requirements of the cluster on the machine: Linux, root, Debian packages, disk space. Each has its own error."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import say
from images import apt

CNI_PLUGINS = Path("/usr/lib/cni")
_ARCHITECTURES = ("x86_64", "aarch64")
# A file of each package -> the package.
_NODE_PACKAGES = {
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "umount": "mount",
    "sysctl": "procps",
}


def check_platform() -> None:
    """Raise ClusterError unless this is Linux on an architecture on which the pinned programs have been tested."""
    if platform.system() != "Linux" or platform.machine() not in _ARCHITECTURES:
        raise ClusterError(
            f"this is {platform.system()} on {platform.machine()}; the embedded cluster runs on Linux on "
            f"{' or '.join(_ARCHITECTURES)}, e.g. Debian 12. Elsewhere, use a cluster of your own through KUBECONFIG"
        )


def check_root() -> None:
    """Raise ClusterError unless the user is root."""
    if os.geteuid() != 0:
        raise ClusterError(
            "a node needs root (namespaces, mounts, cgroups): run it with sudo -E; "
            "`up --control-plane-only` works without root"
        )


def check_room(directory: Path, *, need_gib: float, why: str) -> None:
    """Raise ClusterError unless the file system of DIRECTORY has NEED_GIB GiB of free space."""
    existing = next(parent for parent in (directory, *directory.parents) if parent.exists())
    free_gib = shutil.disk_usage(existing).free / 2**30
    if free_gib < need_gib:
        raise ClusterError(
            f"{directory} has {free_gib:.1f} GiB free; {why} needs {need_gib:g} GiB. "
            "Free some, or set HALCYON_CACHE to a directory with room, e.g. /var/cache/halcyon"
        )


def ensure_packages() -> None:
    """Install the packages that a node needs and that are missing.

    Raises:
        ClusterError: there is no apt-get, or it failed; the message names all missing packages.
    """
    missing = _missing(_NODE_PACKAGES)
    if not missing:
        return
    say(f"installing {', '.join(missing)}")
    try:
        apt.install(missing)
    except apt.AptError as error:
        raise ClusterError(str(error)) from None
    lacking = _missing(_NODE_PACKAGES)
    if lacking:
        raise ClusterError(f"missing even after apt-get install {' '.join(missing)}: {', '.join(lacking)}")


def _missing(packages: dict[str, str]) -> list[str]:
    return sorted({package for file, package in packages.items() if not _present(file)})


def _present(file: str) -> bool:
    # sbin is not on every PATH, but contains administration tools
    return shutil.which(file, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def command(arguments: Iterable[str | Path], *, check: bool = True, stdin: str | None = None) -> str:
    """Run a short command, and return its output.

    Raises:
        ClusterError: it failed and CHECK is True.
    """
    words = [str(word) for word in arguments]
    completed = subprocess.run(words, capture_output=True, text=True, check=False, input=stdin)
    if completed.returncode and check:
        raise ClusterError(
            f"`{' '.join(words)[:300]}` failed with {completed.returncode}: {completed.stderr.strip()[-1000:]}"
        )
    return completed.stdout
