"""Field reports: public reports of failures of other serving systems, tried on this one. Row 6.2 of docs/quality/right.md.

    python -m benchmarks.right.field_reports               # write the page and record the row
    python -m benchmarks.right.field_reports run [N...]    # first run the tests of these reports, or of all

The reports are in field_reports.tsv, from which docs/quality/field-reports.md is written.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.rows import PAGES, ROOT, Row, record

DATA = Path(__file__).with_suffix(".tsv")
PAGE = PAGES / "field-reports.md"
MIN_TRIED = 60
_HEAD = """# Field reports

Written by `python -m benchmarks.right.field_reports` from benchmarks/right/field_reports.tsv, not by hand.

Public reports of people who serve autoscaled models on Kubernetes, and what Halcyon does in the same situation. The list
was written before any of them was tried. The column *right* says what Halcyon should do. The verdict is

- *right*: the test passed at the first try, or what was wrong had been corrected before the report was tried. The last
  column says how a528a11, the commit before this list, behaves.
- *mended*: it was wrong at a528a11 or when it was tried, and has been corrected; the note says where.
- *limit*: it is not right, and docs/limits.md has the reason.
- empty: not tried yet; the test column then says how it could be tried.

Sources name a repository on GitHub and the number of an issue or a pull request. A test is a file, and an expression
for pytest's `-k`.

"""


@dataclass(frozen=True)
class Report:
    """A line of the table."""

    number: str
    repository: str
    kind: str
    """`issues` or `pull`."""
    issue: str
    symptom: str
    right: str
    how: str
    """Smallest way to try it, written before it was tried."""
    verdict: str
    """`right`, `mended` or `limit`; empty if it was not tried."""
    note: str
    old: str
    """Verdict at a528a11: `right`, `wrong`, `limit`, or `not tried`."""
    old_note: str
    tests: str
    """Tests as arguments of pytest."""


def read() -> list[Report]:
    """Return all reports, in the order of their numbers."""
    with DATA.open(newline="") as file:
        return [Report(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def page(reports: Sequence[Report]) -> str:
    """Return the page in Markdown."""
    counts, before = (
        Counter(report.verdict for report in reports),
        Counter(report.old for report in reports if report.verdict),
    )
    summary = (
        f"{sum(counts.values()) - counts['']} of {len(reports)} reports were tried: {counts['right']} right, "
        f"{counts['mended']} mended, {counts['limit']} limits. At a528a11, {before['wrong']} of them are wrong, "
        f"{before['right']} right, {before['limit']} limits, and {before['not tried']} were not tried."
    )
    lines = [
        _HEAD.rstrip(),
        "",
        summary,
        "",
        "| no. | source | symptom | right | verdict | on a528a11 | test |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for report in reports:
        url = f"https://github.com/{report.repository}/{report.kind}/{report.issue}"
        cells = (
            report.number,
            f"[{report.repository} {report.issue}]({url})",
            report.symptom,
            report.right,
            _noted(report.verdict, report.note),
            _noted(report.old, report.old_note),
            f"`{report.tests}`" if report.tests else report.how,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _noted(verdict: str, note: str) -> str:
    return f"{verdict}: {note}" if note else verdict


def run_tests(reports: Sequence[Report]) -> list[str]:
    """Run the tests of the reports, each test once, and return the numbers of the reports that have a failing test."""
    results: dict[str, bool] = {}
    for tests in sorted({report.tests for report in reports if report.tests}):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
        results[tests] = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return [report.number for report in reports if report.tests and not results[report.tests]]


def main(arguments: Sequence[str]) -> int:
    """Write the page, record the row, and return 1 if a test fails."""
    reports = read()
    selected = [report for report in reports if not arguments[1:] or report.number in arguments[1:]]
    failing = run_tests(selected) if arguments[:1] == ["run"] else []
    PAGE.write_text(page(reports))
    tried = [report for report in reports if report.verdict]
    value = {
        "tried": len(tried),
        "right or mended": sum(report.verdict in {"right", "mended"} for report in tried),
        "limits": sum(report.verdict == "limit" for report in tried),
        "wrong at a528a11": sum(report.old == "wrong" for report in tried),
        "at least half wrong at a528a11": int(2 * sum(report.old == "wrong" for report in tried) >= len(tried)),
        "failing": len(failing),
    }
    row = Row(
        "6.2",
        "public reports, listed before they were tried",
        value,
        f">= {MIN_TRIED} tried, every failure mended or a limit, at least half wrong at a528a11",
        [("tried", MIN_TRIED, ">="), ("failing", 0, "=="), ("at least half wrong at a528a11", 1, "==")],
        command="python -m benchmarks.right.field_reports run",
        stand_ins="each test names its own",
        why="most of the reports that were listed are right at a528a11 too"
        if 2 * value["wrong at a528a11"] < len(tried)
        else "",
        n=len(tried),
        raw=[vars(report) for report in tried],
    )
    record("right", [row])
    print(value, f"failing: {failing}" if failing else "")
    return int(bool(failing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
