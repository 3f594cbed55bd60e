"""Commands of the documentation: those that a test runs, whose output is as shown, or that are listed with the reason.

`make test-guides` runs the shell blocks and records whether each printed what its page shows; this module counts.

python -m benchmarks.adoption.documents   # also records the rows of the table that nothing measures yet
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import ROOT, Row, read, record
from e2e.blocks import commands
from e2e.guides import elsewhere, outcome
from e2e.shown_output import Step, steps

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
"""What, target and reason of each row without a measurement, by id."""
_CONSOLE = re.compile(
    r"^```console\n(?P<text>.*?)^```\n(?P<after>\n(?:[^`\n#][^\n]*\n){0,3}\n?```text\n)?", re.DOTALL | re.MULTILINE
)
_CONTINUED = ("\\", "|")


def counts(pages: tuple[Path, ...] = PAGES, record_file: Path = outcome.RECORD) -> dict[str, int]:
    """Return the number of commands and blocks on the pages, and of those without a test, a reason or an output."""
    shown = [command for page in pages for command in commands(page)]
    listed = [command for command in shown if _is_nobodys(command)]
    blocks = [step for page in pages for step in steps(page)]
    recorded = outcome.recorded(record_file)
    compared = [step for step in blocks if not _is_listed(step)]
    agree = sum(_agrees(step, recorded) for step in compared)
    return {
        "commands": len(shown),
        "commands run by a test": len(shown) - len(listed),
        "commands listed with the reason": len(listed),
        "commands without output": sum(
            not _is_nobodys(command) for page in pages for command in _without_output(page.read_text())
        ),
        "blocks of shell": len(blocks),
        "blocks listed with their test or the reason": len(blocks) - len(compared),
        "blocks that printed what their page shows": agree,
        "blocks not shown to print it": len(compared) - agree,
    }


def _is_nobodys(command: str) -> bool:
    return any(command.startswith(start) for start in elsewhere.NOBODY)


def _is_listed(step: Step) -> bool:
    return any(elsewhere.entry(step, listed) for listed in (elsewhere.BLOCKS, elsewhere.NOT_COMPARED))


def _agrees(step: Step, recorded: Mapping[str, Any]) -> bool:
    """Return True if the last run of the block was of this text, and printed what the page shows."""
    found = recorded.get(step.page, {}).get(step.script)
    return found is not None and outcome.of(step, found["printed"]).difference is None


def _without_output(text: str) -> Iterator[str]:
    """Yield the first line of each command in blocks of `console` that has no output there, and none in a block after it."""
    for block in _CONSOLE.finditer(text):
        lines = block["text"].splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
        ends = [*starts[1:], len(lines)]
        for start, end in zip(starts, ends, strict=True):
            if not _has_output(lines[start:end]) and (end < len(lines) or block["after"] is None):
                yield lines[start].removeprefix("$ ")


def _has_output(lines: list[str]) -> bool:
    while lines and lines[0].endswith(_CONTINUED):
        lines = lines[1:]
    return len(lines) > 1


def main() -> int:
    """Record the rows."""
    found = counts()
    rows = [
        Row(
            id="8",
            what="commands of README and docs that a test runs, or that are listed with the reason",
            value=found,
            target="every command has its output, checked by a test that runs it; those that can't run here are listed",
            limits=[("commands without output", 0, "=="), ("blocks not shown to print it", 0, "==")],
            command="make test-guides; python -m benchmarks.adoption.documents",
            why=_why(found),
            n=found["commands"] + found["blocks of shell"],
            raw=outcome.recorded(),
        )
    ]
    known = {str(row["id"]) for row in read("adoption")}
    rows += [
        Row(id=key, what=what, value={"measured": None}, target=target, limits=[("measured", 1, ">=")], why=why)
        for key, (what, target, why) in NOT_MEASURED.items()
        if key not in known
    ]
    record("adoption", rows)
    return 0


def _why(found: Mapping[str, int]) -> str:
    reasons = []
    if found["commands without output"]:
        reasons.append("runbooks and guides name commands whose result they describe in words")
    if found["blocks not shown to print it"]:
        reasons.append("blocks without a run of make test-guides on this text, or whose output differed")
    return "; ".join(reasons)


if __name__ == "__main__":
    sys.exit(main())
