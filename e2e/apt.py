"""Debian packages that a part of e2e needs: installed where there is apt-get. Which ones lack is each part's own business."""

import os
import shutil
import subprocess
from collections.abc import Sequence


class AptError(Exception):
    """Packages can't be installed; the message names all of them, and the command that does it by hand."""


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, without those that they only recommend.

    Raises:
        AptError: there is no apt-get, or it failed.
    """
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    missing = f"missing: {', '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise AptError(f"{missing}, and there is no apt-get; on Debian: {command}")
    for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise AptError(
                f"{missing}; `apt-get {arguments[0]}` failed: {done.stderr.strip()[-500:]}\nInstall by hand: {command}"
            )
