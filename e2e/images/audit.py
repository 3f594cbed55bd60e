"""What has been mended since the images and the lock files were made, as far as the package registries tell it.

Debian: packages of an image of which the suite has a newer version, by apt itself in the image. Python: releases of the lock files that
their makers have withdrawn, by uv. Databases of known vulnerabilities are not asked: a scanner reads the bills of materials.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from e2e.images.build import Workshop, build_images, container
from e2e.images.host import ImagesError, images_directory, prepare
from e2e.images.recipes import RECIPES, REPOSITORY

_NEWER = re.compile(r"^Inst (\S+) \[([^\]]+)\] \((\S+)", re.MULTILINE)
_WITHDRAWN = re.compile(r"^warning: .*\byanked\b.*$", re.MULTILINE)
LOCKS = ("requirements/dev.lock", "requirements/operator.lock", "e2e/images/triton/requirements.lock")


@dataclass(frozen=True)
class Finding:
    """Something that ought to be taken in."""

    where: str
    what: str


def findings() -> list[Finding]:
    """All of them.

    Raises:
        ImagesError: a build failed, or a registry can't be asked.
    """
    chosen = [recipe for recipe in RECIPES.values() if recipe.values_key]
    build_images(recipe.name for recipe in chosen)
    prepare(images_directory())
    workshop = Workshop(images_directory())
    found = []
    for recipe in chosen:
        with workshop.locked(), container(workshop, recipe) as run:
            run("apt-get", "-qq", "update")
            told = run("apt-get", "-s", "-o", "Debug::NoLocking=1", "dist-upgrade")
        found += [Finding(recipe.name, f"{name} {old}: {new} is there") for name, old, new in _NEWER.findall(told)]
    return found + [Finding(lock, text) for lock in LOCKS for text in _withdrawn(lock)]


def _withdrawn(lock: str) -> list[str]:
    """What uv warns of when it would install this file anew."""
    uv = os.environ.get("HALCYON_UV", "uv")
    command = [uv, "pip", "install", "--dry-run", "--reinstall", "--no-deps", "--require-hashes", "-r", lock]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImagesError(f"images: {lock}: uv can't read it: {done.stderr.strip()[-500:]}")
    return _WITHDRAWN.findall(done.stderr)
