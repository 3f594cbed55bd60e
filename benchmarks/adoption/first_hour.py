"""Findings of the review of the first hour, and what closes each of them.

python -m benchmarks.adoption.first_hour
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from benchmarks.quality.rows import ROOT, Row, record

PAGE = ROOT / "docs" / "quality" / "first-hour.md"
_LINE = re.compile(r"^\| (?P<finding>.+?) \| (?P<state>closed|left out|open) \| (?P<evidence>.+) \|$")
_QUOTED = re.compile(r'(?P<file>\S+) has "(?P<words>.*)"')


@dataclass(frozen=True)
class Finding:
    """One line of the page."""

    finding: str
    state: str
    """`closed`: a test or a page holds it. `left out`: a feature that is not built, with a page for users. `open`: neither."""
    evidence: str
    """Tests and pages of a closed finding, separated by semicolons; pages of one that is left out; the reason of an open one."""

    def missing(self) -> list[str]:
        """Return the tests, pages and words that the finding names and that do not exist.

        A test can't answer for a feature that is left out, so such a finding has to name words of a page.
        """
        if self.state == "open":
            return []
        references = self.evidence.split("; ")
        is_answered = self.state == "closed" or any(_QUOTED.fullmatch(reference) for reference in references)
        return [reference for reference in references if not is_answered or not _exists(reference)]


def _exists(evidence: str) -> bool:
    evidence = evidence.replace("\\|", "|")
    if quoted := _QUOTED.fullmatch(evidence):
        file = ROOT / quoted["file"]
        return file.is_file() and _unwrapped(quoted["words"]) in _unwrapped(file.read_text())
    name, _, test = evidence.partition("::")
    file = ROOT / name
    if not test:
        return file.is_file()
    return (
        file.is_file() and re.search(rf"^(async )?def {re.escape(test)}\(", file.read_text(), re.MULTILINE) is not None
    )


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def findings() -> list[Finding]:
    """Return the lines of the page."""
    lines = (_LINE.match(line) for line in PAGE.read_text().splitlines())
    return [Finding(line["finding"], line["state"], line["evidence"]) for line in lines if line]


def row(findings: list[Finding]) -> Row:
    """Return the row of these findings. It holds if each is closed, or left out with a page that answers it."""
    counts = {state: sum(finding.state == state for finding in findings) for state in ("closed", "left out", "open")}
    open_ = [finding.finding for finding in findings if finding.state == "open"]
    return Row(
        id="3",
        what="findings of the review of the first hour (docs/quality/first-hour.md)",
        value={
            "closed by a test or a page": counts["closed"],
            "left out, with a page of what to use instead": counts["left out"],
            "open": counts["open"],
            "without what they name": sum(bool(finding.missing()) for finding in findings),
        },
        target="each closed by a test or a page",
        limits=[("open", 0, "=="), ("without what they name", 0, "==")],
        command="python -m benchmarks.adoption.first_hour",
        why=f"open: {'; '.join(open_)}" if open_ else "",
        n=len(findings),
        raw=[finding.__dict__ for finding in findings],
    )


def main() -> int:
    """Record the row."""
    record("adoption", [row(findings())])
    return 0


if __name__ == "__main__":
    sys.exit(main())
