"""Hatch's build hook: says so if a wheel or source archive is made without the dashboard's chart library, which isn't in git.

The command line needs no charts, only the operator's packages, so pip alone installs a plain clone. An operator without the library says
so when it starts and in place of the dashboard's pages. Images are never built without it (images/operator/install.py).
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "operator/halcyon/dashboard/static/uplot/uPlot.esm.js"


class WithCharts(BuildHookInterface):  # type: ignore[type-arg]
    """A warning about what would show no pages; an editable install may come before the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is the kind of build: standard or editable."""
        del build_data
        if version != "editable" and not (Path(self.root) / LIBRARY).is_file():
            self.app.display_warning(
                f"{LIBRARY} is not there: all is complete but the operator's dashboard, which has no pages. "
                "`make bootstrap` fetches it; then build again"
            )
