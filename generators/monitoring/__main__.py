"""Writes what is generated from the lists: `python -m generators.monitoring DIRECTORY` makes metrics.md, alerts.yaml, dashboards/NAME.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from generators.monitoring import alerts, reference
from generators.monitoring.dashboards import BOARDS
from generators.monitoring.grafana import dashboard

_HEAD = (
    "# Written by scripts/generate from generators/monitoring/alerts.py; change that. The chart replaces __WORDS__.\n"
)


def main(directory: Path) -> None:
    """Write the files."""
    (directory / "dashboards").mkdir(parents=True)
    (directory / "metrics.md").write_text(reference.page())
    (directory / "alerts.yaml").write_text(
        _HEAD + yaml.safe_dump({"groups": alerts.groups()}, sort_keys=False, width=150)
    )
    for name, board in BOARDS.items():
        written = json.dumps(dashboard(board), indent=1, ensure_ascii=False)
        (directory / "dashboards" / f"{name}.json").write_text(f"{written}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
