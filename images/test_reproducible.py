"""Two builds that share nothing, a while apart, have the same files with the same content.

Archives as a whole differ: layers and configuration have times in them. `make test-supply` runs this; what Debian mends between the two builds
would be found, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import archives
from images.recipes import REPOSITORY
from tests import figures

SHIPPED = ("operator", "bench", "balancer", "tritonserver-cpu")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Folders of images, of two builds that share nothing."""
    caches = [tmp_path_factory.mktemp("cache") for _ in range(2)]
    try:
        for cache in caches:
            command = [sys.executable, "-m", "images", "build", "--only", *SHIPPED]
            subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "HALCYON_CACHE": str(cache)}, check=True)
        yield [cache / "images" for cache in caches]
    finally:
        for cache in caches:
            # What root made read-only is root's to remove.
            subprocess.run(["rm", "-rf", str(cache)], check=True)


@pytest.mark.parametrize("name", SHIPPED)
def test_two_builds_have_the_same_files(built: list[Path], name: str) -> None:
    first, second = (archives.read(folder / f"{name}.tar", lambda _: False).files for folder in built)

    assert first.keys() == second.keys()
    differing = [path for path in sorted(first) if first[path].sha256 != second[path].sha256]
    figures.record(f"reproducible_{name.replace('-', '_')}_files", len(first))
    assert differing == []
