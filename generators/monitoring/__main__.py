"""Generator of metrics.md, numbers.md, alerts.yaml and dashboards/NAME.json: `python -m generators.monitoring DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from generators.monitoring import alerts, numbers_page, reference
from generators.monitoring.dashboards import DASHBOARDS
from generators.monitoring.grafana import dashboard

_HEAD = "# Written by scripts/generate from generators/monitoring/model_alerts.py and operator_alerts.py; edit those files. The chart replaces __WORDS__.\n"


def main(directory: Path) -> None:
    """Write all files to the directory."""
    (directory / "dashboards").mkdir(parents=True)
    (directory / "metrics.md").write_text(reference.page())
    (directory / "numbers.md").write_text(numbers_page.page())
    (directory / "alerts.yaml").write_text(
        _HEAD + yaml.safe_dump({"groups": alerts.groups()}, sort_keys=False, width=150)
    )
    for name, board in DASHBOARDS.items():
        text = json.dumps(dashboard(board), indent=1, ensure_ascii=False)
        (directory / "dashboards" / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
