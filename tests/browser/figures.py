"""Figures of the browser tests and the samples behind them, which benchmarks/adoption/dashboard.py makes a row of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FIGURES = Path("build/browser.json")
SAMPLES = Path("build/browser-samples.json")


def record(**figures: float) -> None:
    """Keep figures of this run."""
    _write(FIGURES, _read(FIGURES) | {name: round(value, 3) for name, value in figures.items()})


def add_samples(name: str, samples: Iterable[Any]) -> None:
    """Keep samples of this run beside the earlier ones with this name."""
    known = _read(SAMPLES)
    _write(SAMPLES, known | {name: [*known.get(name, []), *samples]})


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _write(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
