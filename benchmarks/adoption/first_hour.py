"""Findings of the review of the first hour, and what closes each of them.

python -m benchmarks.adoption.first_hour
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from benchmarks.quality.rows import ROOT, Row, record

PAGE = ROOT / "docs" / "quality" / "first-hour.md"
_LINE = re.compile(r"^\| (?P<finding>.+?) \| (?P<state>closed|open) \| (?P<evidence>.+) \|$")
_QUOTED = re.compile(r'(?P<file>\S+) has "(?P<words>.*)"')


@dataclass(frozen=True)
class Finding:
    """One line of the page."""

    finding: str
    is_closed: bool
    evidence: str
    """Tests and pages of a closed finding, separated by semicolons; the reason of an open one."""

    def missing(self) -> list[str]:
        """Return the tests, pages and words of a closed finding that do not exist."""
        return [one for one in self.evidence.split("; ") if self.is_closed and not _exists(one)]


def _exists(evidence: str) -> bool:
    evidence = evidence.replace("\\|", "|")
    if quoted := _QUOTED.fullmatch(evidence):
        file = ROOT / quoted["file"]
        return file.is_file() and _on_one_line(quoted["words"]) in _on_one_line(file.read_text())
    name, _, test = evidence.partition("::")
    file = ROOT / name
    if not test:
        return file.is_file()
    return (
        file.is_file() and re.search(rf"^(async )?def {re.escape(test)}\(", file.read_text(), re.MULTILINE) is not None
    )


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def findings() -> list[Finding]:
    """Return the lines of the page."""
    lines = (_LINE.match(line) for line in PAGE.read_text().splitlines())
    return [Finding(line["finding"], line["state"] == "closed", line["evidence"]) for line in lines if line]


def main() -> int:
    """Record the row."""
    found = findings()
    unproven = sum(bool(one.missing()) for one in found)
    open_ = [one for one in found if not one.is_closed]
    record(
        "adoption",
        [
            Row(
                id="3",
                what="findings of the review of the first hour (docs/quality/first-hour.md)",
                value={
                    "closed": len(found) - len(open_),
                    "open": len(open_),
                    "closed without what they name": unproven,
                },
                target="each closed by a test or a page",
                limits=[("open", 0, "=="), ("closed without what they name", 0, "==")],
                command="python -m benchmarks.adoption.first_hour",
                why=f"open: {'; '.join(one.finding for one in open_)}" if open_ else "",
                n=len(found),
                raw=[one.__dict__ for one in found],
            )
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
