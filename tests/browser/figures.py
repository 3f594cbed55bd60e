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


def task_cpu_ms(trace: bytes) -> list[float]:
    """Return the CPU time of each task of a page's main thread, from a trace of Chromium.

    Unlike the time that passes, it does not depend on the other programs of the machine.
    """
    events = json.loads(trace)["traceEvents"]
    names = [event for event in events if event.get("name") == "thread_name"]
    main = {(event["pid"], event["tid"]) for event in names if event["args"]["name"] == "CrRendererMain"}
    tasks = (event for event in events if event.get("name") == "RunTask" and (event["pid"], event["tid"]) in main)
    return [event.get("tdur", 0) / 1000 for event in tasks]


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return content


def _write(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
