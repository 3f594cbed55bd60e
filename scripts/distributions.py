"""Hatch metadata hook for what a distribution requires: the lists of `tool.hatch.metadata.hooks.custom` in its pyproject.toml.

`distributions` has the folders of those of ours. In a clone, a requirement on one becomes the
address of that folder, so that `pip install .` and `pip install ./cli` need no index for it. In a release, which
scripts/release.py builds with HALCYON_RELEASE=1, and outside of a clone it becomes the same version.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELEASE = "HALCYON_RELEASE"


class Distributions(MetadataHookInterface):
    """Metadata hook that fills `dependencies` and `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields of `[project]`."""
        folders: dict[str, str] = self.config["distributions"]
        own = {
            name: _requirement(name, Path(self.root) / folder, metadata["version"]) for name, folder in folders.items()
        }
        lists: dict[str, Any] = self.config["requirements"]
        metadata["dependencies"] = _replaced(lists["dependencies"], own)
        metadata["optional-dependencies"] = {
            extra: _replaced(requirements, own)
            for extra, requirements in lists.get("optional-dependencies", {}).items()
        }


def _requirement(name: str, folder: Path, version: str) -> str:
    if RELEASE in os.environ or not (folder / "pyproject.toml").is_file():
        return f"{name}=={version}"
    return f"{name} @ {folder.resolve().as_uri()}"


def _replaced(requirements: list[str], own: dict[str, str]) -> list[str]:
    return [own.get(requirement, requirement) for requirement in requirements]
