"""Figures that only tests can measure, kept in build/figures/KEY.json, whence `make demo` takes them into build/demo.json."""

import json
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "build" / "figures"


def record(key: str, value: float) -> None:
    """Keep the figure of this run."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{key}.json").write_text(json.dumps(value) + "\n")
