"""Each kind of store with identity and with keys against eight faults, as rows of tests.

python -m benchmarks.adoption.stores   # runs tests/integration/fetch/test_fault_matrix.py, some 3 minutes
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.quality.rows import ROOT, Row, record

TESTS = "tests/integration/fetch/test_fault_matrix.py"
_CELL = "test_a_fault_has_its_condition_and_leaves_no_model["
KINDS = 9
"""S3, Google and Azure with keys and with an identity; a web server, the hub and MLflow with keys, as they take no identity."""
FAULTS = 8


def outcomes(report: Path) -> dict[str, bool]:
    """Return whether each cell of the matrix passed, from a report in the format of JUnit."""
    cases = ET.parse(report).getroot().iter("testcase")  # pytest wrote it
    cells = (case for case in cases if case.attrib["name"].startswith(_CELL))
    failing_tags = {"failure", "error", "skipped"}
    return {
        cell.attrib["name"].removeprefix(_CELL).rstrip("]"): not any(part.tag in failing_tags for part in cell)
        for cell in cells
    }


def main() -> int:
    """Run the tests, and record the row."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", TESTS]
        subprocess.run(command, cwd=ROOT, check=False)
        cells = outcomes(report)
    failed = sorted(cell for cell, passed in cells.items() if not passed)
    record(
        "adoption",
        [
            Row(
                id="6",
                what="stores: each kind with identity and with keys, 8 faults each",
                value={"cells": len(cells), "right condition, nothing half loaded": len(cells) - len(failed)},
                target=f"{KINDS * FAULTS} of {KINDS * FAULTS} cells with the right condition, nothing half loaded",
                limits=[("right condition, nothing half loaded", KINDS * FAULTS, ">=")],
                command="python -m benchmarks.adoption.stores",
                stand_ins=(
                    "the hub, Azure's store and the token services are stand-ins; versitygw, fake-gcs-server and MLflow are real "
                    "servers; faults are of a proxy in front of them"
                ),
                why=f"failed: {', '.join(failed)}" if failed else "",
                n=len(cells),
                raw=cells,
            )
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
