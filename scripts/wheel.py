"""Hatch build hook that warns if a wheel or source archive is built without the dashboard's chart library.

The library isn't in git. The command line needs only the operator's packages and no charts, so pip can install a plain
clone. An operator without the library reports this at its start and in place of the dashboard's pages. Images always
contain it (images/operator/install.py).
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "operator/halcyon/dashboard/static/uplot/uPlot.esm.js"


class WithCharts(BuildHookInterface):  # type: ignore[type-arg]
    """Build hook that prints a warning if the chart library is missing. An editable install may precede the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Print the warning, unless the build is editable. `version` is the kind of build: standard or editable."""
        del build_data
        if version != "editable" and not (Path(self.root) / LIBRARY).is_file():
            self.app.display_warning(
                f"{LIBRARY} is not there: all is complete but the operator's dashboard, which has no pages. "
                "`make bootstrap` fetches it; then build again"
            )
