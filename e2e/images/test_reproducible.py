"""Two builds from nothing, a while apart, have the same files with the same content: all but the few that are named here, with the reason."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.images import archives, packages
from e2e.images.archives import File
from e2e.images.recipes import REPOSITORY

DESCRIBED = ("operator", "balancer", "tritonserver-cpu")
DIFFER: dict[str, str] = {
    "var/cache/ldconfig/aux-cache": "holds times of libraries",
}
"""Patterns of paths -> why."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Folders of images, of two builds that share nothing."""
    caches = [tmp_path_factory.mktemp("cache") for _ in range(2)]
    for cache in caches:
        command = [sys.executable, "-m", "e2e.images", "build", "--only", *DESCRIBED]
        subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "HALCYON_CACHE": str(cache)}, check=True)
    yield [cache / "images" for cache in caches]
    for cache in caches:
        # What root made read-only is root's to remove.
        subprocess.run(["rm", "-rf", str(cache)], check=True)


@pytest.mark.parametrize("name", DESCRIBED)
def test_two_builds_have_the_same_files(built: list[Path], name: str) -> None:
    one, other = (archives.read(folder / f"{name}.tar", packages.wanted).files for folder in built)

    assert one.keys() == other.keys()
    assert _differing(one, other) == []


def _differing(one: dict[str, File], other: dict[str, File]) -> list[str]:
    return [
        path
        for path in sorted(one)
        if one[path].sha256 != other[path].sha256 and not any(fnmatch.fnmatchcase(path, pattern) for pattern in DIFFER)
    ]
