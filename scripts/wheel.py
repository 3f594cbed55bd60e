"""Hatch build hook for the chart library, which isn't in git: of the operator's distribution and of the command line's.

The operator has it in its own folder. The command line, which is installed without the operator, gets a copy for
`halcyon report` (`copy_to` in cli/pyproject.toml). Without the library, a wheel is complete but for charts: an operator
reports this at its start and in place of the dashboard's pages, and a report has tables alone. Images always contain it
(images/install.py).
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "operator/halcyon/dashboard/static/uplot"
FILES = ("uPlot.esm.js", "uPlot.min.css", "LICENSE")


class WithCharts(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook that adds the chart library, or warns if it is missing. An editable install may precede the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the files of the build. `version` is the kind of build: standard or editable."""
        library = Path(self.root) / self.config.get("library", LIBRARY)
        if version == "editable":
            return
        if not (library / FILES[0]).is_file():
            self.app.display_warning(
                f"{library / FILES[0]} is not there: all is complete but the operator's dashboard and the charts of halcyon report. "
                "`make bootstrap` fetches it; then build again"
            )
        elif copy_to := self.config.get("copy_to"):
            build_data["force_include"] |= {str(library / name): f"{copy_to}/{name}" for name in FILES}
