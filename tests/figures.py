"""Figures that only tests can measure, stored in build/figures/KEY.json.

`make demo` includes them in build/demo.json.
"""

import json
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "build" / "figures"


def record(key: str, value: float) -> None:
    """Store the figure measured by this run."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{key}.json").write_text(json.dumps(value) + "\n")
