"""Commands of the documentation: those that a test runs, and those that none can run here, with the reason.

python -m benchmarks.adoption.documents   # also records the rows of the table that nothing measures yet
"""

from __future__ import annotations

import re
import sys

from benchmarks.quality.rows import ROOT, Row, read, record
from e2e.blocks import commands
from e2e.guides import elsewhere

_SHELL = re.compile(
    r"^```sh\n(?:(?!```).)*?^```\n\n(?:[^`\n#][^\n]*\n){0,3}\n?(?P<output>```text\n)?", re.DOTALL | re.MULTILINE
)
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
        "measured by make test-browser into build/browser.json, not yet as a row",
    ),
}
"""What, target and reason of each row without a measurement, by id."""


def counts() -> dict[str, int]:
    """Return the number of commands and blocks on all pages, and of those without a test, a reason or an output."""
    shown = [command for page in PAGES for command in commands(page)]
    listed = [command for command in shown if any(command.startswith(start) for start in elsewhere.NOBODY)]
    scripts = [found for page in PAGES for found in _SHELL.finditer(page.read_text())]
    return {
        "commands": len(shown),
        "commands run by a test": len(shown) - len(listed),
        "commands listed with the reason": len(listed),
        "blocks of shell": len(scripts),
        "blocks without output": sum(not found["output"] for found in scripts),
    }


def main() -> int:
    """Record the rows."""
    found = counts()
    rows = [
        Row(
            id="8",
            what="commands of README and docs that a test runs, or that are listed with the reason",
            value=found,
            target="every command has its output, checked by a test that runs it; those that can't run here are listed",
            limits=[("blocks without output", 0, "==")],
            command="python -m benchmarks.adoption.documents",
            why="all commands are run (e2e/guides), but outputs are compared only where no cluster is needed",
            n=found["commands"],
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


if __name__ == "__main__":
    sys.exit(main())
