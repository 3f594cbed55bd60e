"""What Debian has mended since the images were built: packages of which the suite has a newer version, by apt itself in the image.

Databases of known vulnerabilities are not asked: a scanner reads the bills of materials.
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
            # Without that, apt takes lists that it could not fetch for none, and there would be nothing newer.
            run("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
            told = run("apt-get", "-s", "-o", "Debug::NoLocking=1", "dist-upgrade")
        found += [Finding(recipe.name, f"{name} {old}: {new} is there") for name, old, new in _NEWER.findall(told)]
    return found
