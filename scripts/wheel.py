"""Hatch's build hook: no wheel and no source archive without the dashboard's chart library, which isn't in git."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "operator/halcyon/dashboard/static/uplot/uPlot.esm.js"


class WithCharts(BuildHookInterface):  # type: ignore[type-arg]
    """Refuses to build what would show no charts; an editable install may come before the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is the kind of build: standard or editable."""
        del build_data
        if version != "editable" and not (Path(self.root) / LIBRARY).is_file():
            raise FileNotFoundError(f"{LIBRARY} is not there: `make bootstrap` fetches it")
