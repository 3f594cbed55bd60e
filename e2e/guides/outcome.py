"""Outcome of a page's shell block or command: whether it printed what its page shows; the record of the last run of each page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import OUT, commit, today
from e2e.guides import elsewhere, reader
from e2e.shown_output import Step, difference

RECORD = OUT / "raw" / "guides.json"


@dataclass(frozen=True)
class Outcome:
    """Comparison of the output of one block or command."""

    is_compared: bool
    difference: str | None
    """Words that differ; None if the output is the shown one, or isn't compared."""
    printed: str


def compare(step: Step, printed: str) -> Outcome:
    """Compare the output of a block or a command with the shown one.

    If the page has no output, nothing is printed. Names on the page count as those of the cluster.
    """
    if elsewhere.entry(step, elsewhere.SHOWN_BY | elsewhere.NOT_COMPARED) is not None:
        return Outcome(is_compared=False, difference=None, printed=printed)
    has_figures = elsewhere.entry(step, elsewhere.MEASURED) is not None
    shown, real = reader.named(elsewhere.expected(step)), reader.named(printed)
    return Outcome(True, difference(shown, real, has_figures=has_figures), printed)


def record(page: Path, outcomes: Mapping[str, Outcome], *, file: Path = RECORD) -> None:
    """Keep the outcomes of a page's blocks and commands, by their scripts, in place of those of an earlier run.

    Pages with the same name in two folders share an entry.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    run = {"commit": commit(), "date": today()}
    runs = recorded(file)
    runs.setdefault(page.name, {}).update({script: asdict(outcome) | run for script, outcome in outcomes.items()})
    file.write_text(json.dumps(runs, indent=1) + "\n")


def recorded(file: Path = RECORD) -> dict[str, Any]:
    """Return the outcomes of the last run of each page, by page; empty if no page was run."""
    runs: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return runs
