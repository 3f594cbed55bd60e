"""Commands of the documentation: those that a test runs, whose output is as shown, or that are listed with the reason.

`make test-guides` runs the shell blocks and commands, and records whether each printed what its page shows; this module counts.
A command without an output on its page is right only if its last run printed nothing.

python -m benchmarks.adoption.documents   # also records the rows of the table that nothing measures yet
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import ROOT, Row, read, record
from e2e.guides import elsewhere, outcome
from e2e.shown_output import Step, console_steps, steps

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
NOT_MEASURED = {
    "2": (
        "the GPU image on a GPU",
        "run where a GPU can be had",
        "no cluster with a GPU; the image is rendered and compared with its documentation (docs/limits.md)",
    ),
    "7": (
        "dashboard: first paint, axe, console, 5,000 models, idle",
        "<= 0.7 s, 0, 0, no frame > 50 ms, < 1 % of a core",
        "python -m benchmarks.adoption.dashboard was not run",
    ),
}
"""Subject, target and reason of each row without a measurement, by id."""
_WHY = {
    "commands not shown to print it": "commands without a run of make test-guides on this text, or whose output differed",
    "blocks not shown to print it": "blocks without a run of make test-guides on this text, or whose output differed",
}
"""Counts that must be 0, and why they may not be."""


def counts(pages: tuple[Path, ...] = PAGES, record_file: Path = outcome.RECORD) -> dict[str, int]:
    """Return the number of commands and blocks on the pages, and of those without a test, a reason or an output."""
    commands = [step for page in pages for step in console_steps(page)]
    tested = [step for step in commands if not elsewhere.is_not_run(step)]
    matched = [step for step in tested if elsewhere.is_compared(step)]
    shown_elsewhere = [step for step in tested if elsewhere.entry(step, elsewhere.SHOWN_BY) is not None]
    blocks = [step for page in pages for step in steps(page)]
    compared = [step for step in blocks if not _is_listed(step)]
    recorded = outcome.recorded(record_file)
    commands_as_shown = sum(_agrees(step, recorded) for step in matched)
    blocks_as_shown = sum(_agrees(step, recorded) for step in compared)
    return {
        "commands": len(commands),
        "commands run by a test": len(tested),
        "commands listed with the reason": len(commands) - len(tested),
        "commands without output": sum(step.output is None and not _is_silent(step, recorded) for step in tested),
        "commands whose output is of another test's state": len(shown_elsewhere),
        "commands whose output isn't compared": len(tested) - len(matched) - len(shown_elsewhere),
        "commands that printed what their page shows": commands_as_shown,
        "commands not shown to print it": len(matched) - commands_as_shown,
        "blocks of shell": len(blocks),
        "blocks listed with their test or the reason": len(blocks) - len(compared),
        "blocks that printed what their page shows": blocks_as_shown,
        "blocks not shown to print it": len(compared) - blocks_as_shown,
    }


def _is_listed(step: Step) -> bool:
    return any(elsewhere.entry(step, listed) for listed in (elsewhere.BLOCKS, elsewhere.NOT_COMPARED))


def _agrees(step: Step, recorded: Mapping[str, Any]) -> bool:
    """Return True if the last run of the block or command was of this text, and printed what the page shows."""
    run = recorded.get(step.page, {}).get(step.script)
    return run is not None and outcome.compare(step, run["printed"]).difference is None


def _is_silent(step: Step, recorded: Mapping[str, Any]) -> bool:
    """Return True if the last run of the command printed nothing."""
    run = recorded.get(step.page, {}).get(step.script)
    return run is not None and not run["printed"].strip()


def main() -> int:
    """Record the rows."""
    figures = counts()
    rows = [
        Row(
            id="8",
            what="commands of README and docs that a test runs, or that are listed with the reason",
            value=figures,
            target="every command has its output, checked by a test that runs it; those that can't run here are listed",
            limits=[(name, 0, "==") for name in (*_WHY, "commands without output")],
            command="make test-guides; python -m benchmarks.adoption.documents",
            why=_why(figures),
            n=figures["commands"] + figures["blocks of shell"],
            raw=outcome.recorded(),
        )
    ]
    recorded_ids = {str(row["id"]) for row in read("adoption")}
    rows += [
        Row(id=key, what=subject, value={"measured": None}, target=target, limits=[("measured", 1, ">=")], why=why)
        for key, (subject, target, why) in NOT_MEASURED.items()
        if key not in recorded_ids
    ]
    record("adoption", rows)
    return 0


def _why(figures: Mapping[str, int]) -> str:
    reasons = [why for name, why in _WHY.items() if figures[name]]
    if figures["commands without output"]:
        reasons.append("commands whose result their page describes in words")
    return "; ".join(reasons)


if __name__ == "__main__":
    sys.exit(main())
