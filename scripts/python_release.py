"""Runs the unit tests with a release of Python that the machine may not have: `make test-python PYTHON=3.14`.

The interpreter is Debian's, in a container that buildah runs from a base image of a suite that has this release. The packages are
those of requirements/dev.lock by their hashes, in an environment that is cached. Needs root, as the images do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from images.build import Workshop, certificates, ensure_base  # noqa: E402  # after the path
from images.host import ImagesError, images_directory, prepare  # noqa: E402
from images.recipes import Base  # noqa: E402

SUITES = {"3.13": "trixie", "3.14": "forky"}
"""Release of Python -> the oldest suite of Debian that has it. No suite has 3.12."""
_UV = Path("uv-0.13.9/bin/uv")
_DISTRIBUTIONS = (".", "core", "cli", "simulator")
_SETTINGS = ("UV_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""First letters of the machine's settings for package indexes and proxies."""


def base(release: str) -> Base:
    """Return the base image with this release of Python.

    Raises:
        ImagesError: no suite is known that has it.
    """
    if release not in SUITES:
        raise ImagesError(f"test-python: PYTHON is {release}; Debian's suites have {' and '.join(SUITES)}: PYTHON=3.14")
    packages = (f"python{release}", f"python{release}-venv", "git")
    # The lists of a suite that isn't released expire after a week, and a mirror can be weeks behind.
    return Base(suite=SUITES[release], packages=packages, may_be_expired=True)


def script(release: str, environment: Path, uv: Path, tests: str) -> str:
    """Return the shell script that makes the environment, if it isn't there, and runs the tests with it."""
    editable = " ".join(f"--editable {ROOT / folder}" for folder in _DISTRIBUTIONS)
    return f"""
set -eu
cd {ROOT}
export PATH={environment}/bin:$PATH UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_SYSTEM_CERTS=true \\
  UV_CACHE_DIR={environment.parent}/uv
export PYTHONPYCACHEPREFIX={environment}/bytecode
if [ ! -e {environment}/complete ]; then
  {uv} venv -q --clear --python /usr/bin/python{release} {environment}
  {uv} pip sync -q --python {environment}/bin/python --require-hashes requirements/dev.lock
  touch {environment}/complete
fi
{uv} pip install -q --python {environment}/bin/python --no-deps --no-build-isolation {editable}
python --version
exec python -m tests.parts {tests} -q
"""


def mounted() -> list[Path]:
    """Return the folders that the container shares with the machine: the tree, its git directory, and the cache."""
    git = subprocess.run(
        ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    folders = dict.fromkeys((ROOT, Path(git), images_directory().parent))
    return [
        folder for folder in folders if not any(folder != other and folder.is_relative_to(other) for other in folders)
    ]


def run(release: str, tests: str = "./tests/unit") -> int:
    """Run the tests, and return their exit status.

    Raises:
        ImagesError: the container can't be made.
    """
    image, cache = base(release), images_directory().parent
    # A storage of its own: builds of images, which take minutes, don't wait for it, nor it for them.
    directory = cache / "python"
    directory.mkdir(exist_ok=True)
    prepare(directory)
    workshop = Workshop(directory)
    log = f"python-{release}"
    with workshop.locked():
        ensure_base(workshop, image)
        container = workshop.buildah("from", "--pull-never", image.reference, log=log)
    content = hashlib.sha256((ROOT / "requirements" / "dev.lock").read_bytes() + image.digest.encode())
    environment = directory / f"{release}-{content.hexdigest()[:16]}"
    # buildah reads the values itself, because they may hold passwords.
    settings = [part for name in os.environ if name.upper().startswith(_SETTINGS) for part in ("--env", name)]
    volumes = [part for folder in mounted() for part in ("--volume", f"{folder}:{folder}")]
    command = script(release, environment, cache / _UV, tests)
    try:
        return workshop.run_in_terminal(
            "run", *certificates(), *volumes, *settings, container, "--", "sh", "-c", command
        )
    finally:
        workshop.buildah("rm", container, log=log)


def main(arguments: Sequence[str]) -> int:
    """Run the unit tests, or those of the folder in the second argument, with the release in the first."""
    try:
        return run(*arguments)
    except ImagesError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
