"""Packages and time of an installation of the command line, and the files of a release without a push.

python -m benchmarks.adoption.packages
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zipfile import ZipFile

from benchmarks.quality.rows import ROOT, Row, record
from images.host import images_directory

MAX_PACKAGES = 20
MAX_INSTALL_S = 10
MAX_LINES = 40_000
PARTS = (
    *("charts/halcyon-*.tgz", "charts/halcyon-crds-*.tgz", "install.yaml", "krew/halcyon.yaml", "SHA256SUMS"),
    *(
        "cli/halcyon-*",
        "cli/kubectl-*.tar.gz",
        *(f"wheels/halcyon_{name}-*.whl" for name in ("core", "operator", "cli")),
    ),
)
"""Files that a release must have, as patterns below build/release."""


def installed(wheels: Path, folder: Path) -> tuple[int, float]:
    """Install the command line's wheels with uv; return the number of packages and the seconds."""
    uv = images_directory().parent / "uv-0.13.9" / "bin" / "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    wheel_files = [path for path in wheels.glob("*.whl") if path.name.startswith(("halcyon_core", "halcyon_cli"))]
    began = time.monotonic()
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *wheel_files], check=True)
    took_s = time.monotonic() - began
    freeze = subprocess.run([uv, "pip", "freeze", "--python", python], check=True, capture_output=True, text=True)
    return len(freeze.stdout.splitlines()), took_s


def lines(wheel: Path) -> int:
    """Return the lines of Python in a wheel."""
    with ZipFile(wheel) as content:
        return sum(len(content.read(name).splitlines()) for name in content.namelist() if name.endswith(".py"))


def main() -> int:
    """Build a release without a push, install the command line, and record the row."""
    began = time.monotonic()
    subprocess.run([sys.executable, ROOT / "scripts" / "release.py", "--dry-run", "--without-sbom"], check=True)
    release_s = time.monotonic() - began
    out = ROOT / "build" / "release"
    (operator,) = (out / "wheels").glob("halcyon_operator-*.whl")
    (core,) = (out / "wheels").glob("halcyon_core-*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        packages, install_s = installed(out / "wheels", Path(scratch) / "venv")
    missing = [pattern for pattern in PARTS if not list(out.glob(pattern))]
    record(
        "adoption",
        [
            Row(
                id="4",
                what="installation of the command line's wheels; the operator's wheel; files of a release without a push",
                value={
                    "packages": packages,
                    "install seconds": round(install_s, 1),
                    "lines of the operator's wheel": lines(operator),
                    "lines of the wheel it shares with the command line": lines(core),
                    "missing files of the release": len(missing),
                    "release seconds": round(release_s),
                },
                target=f"<= {MAX_PACKAGES} packages in <= {MAX_INSTALL_S} s; <= {MAX_LINES} lines; every file",
                limits=[
                    ("packages", MAX_PACKAGES, "<="),
                    ("install seconds", MAX_INSTALL_S, "<="),
                    ("lines of the operator's wheel", MAX_LINES, "<="),
                    ("missing files of the release", 0, "=="),
                ],
                command="python -m benchmarks.adoption.packages",
                stand_ins="uv for pip, with a warm cache; digests of the local archives; no bills of materials, which need root",
                raw={
                    "missing": missing,
                    "files": sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()),
                },
            )
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
