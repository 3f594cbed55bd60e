"""Hatch build hook of distributions that are a part of the package `halcyon`: `parts` maps paths of the clone to paths in the wheel.

Hatch's own `force-include` also copies the files in an editable installation. There the copy would hide the other
distributions' parts of the package, and later changes.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Parts(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook that adds the parts to a wheel, and nothing to an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the parts. `version` is the kind of build: standard or editable."""
        if version != "editable":
            build_data["force_include"] |= self.config["parts"]
