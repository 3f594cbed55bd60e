"""Audit of the images for outdated packages, for which Debian's suite now has a newer version.

The check runs apt in each image. It doesn't use databases of known vulnerabilities; for those, run a scanner on the
bills of materials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from images.build import Workshop, build_images, container
from images.host import images_directory, prepare
from images.recipes import RECIPES

_NEWER = re.compile(r"^Inst (\S+) \[([^\]]+)\] \((\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """Available update that an image should include."""

    image: str
    update: str
    """Package with its installed and its available version."""


def findings() -> list[Finding]:
    """Return the findings for all images.

    Raises:
        ImagesError: a build failed, or a registry is unreachable.
    """
    recipes = [recipe for recipe in RECIPES.values() if recipe.values_key]
    build_images(recipe.name for recipe in recipes)
    prepare(images_directory())
    workshop = Workshop(images_directory())
    updates = []
    for recipe in recipes:
        with workshop.locked(), container(workshop, recipe) as run:
            # Without this option, apt treats lists that it could not download as empty, and would report no updates.
            run("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
            simulation = run("apt-get", "-s", "-o", "Debug::NoLocking=1", "dist-upgrade")
        updates += [
            Finding(recipe.name, f"{name} {old}: {new} is there") for name, old, new in _NEWER.findall(simulation)
        ]
    return updates
