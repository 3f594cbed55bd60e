"""Check of the benchmark's page: its rows are run again, and the results must equal the page in all digits.

`make bench-scaling` runs thousands of points to find the nearest peer of each row. This check uses the peers that the
page names, and runs only these and Halcyon, on all seeds. It shows whether the code still gives the figures on the
page. Out of scope: whether another peer has become the nearest one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from halcyon_simulator.benchmark.page import figures, pace
from halcyon_simulator.benchmark.result_store import Store
from halcyon_simulator.benchmark.statistics import Cell, PolicyPoint
from halcyon_simulator.benchmark.table import Table, cells
from halcyon_simulator.policies.registry import BALANCED, HALCYON, parsed

_ROW = re.compile(
    r"^\| (?P<scenario>S[\w-]+) \| (?P<law>L\d) \| (?P<start>\d+) \| (?P<alone>[^|]+ \| [^|]+ \| [^|]+) "
    r"\| (?P<near>[^|`]+?) \(`(?P<peer>[^`]+)`\) \| [^|]+ \| (?P<installed>[^|]+) \|",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Difference:
    """Figure on the page that differs from the result of a repeated run."""

    cell: str
    policy: str
    shown: str
    measured: str


def shown(text: str) -> dict[Cell, dict[str, str]]:
    """Return the figures on a page.

    For each cell, these are the violations and the GPU time of each policy, and the pace of the planner.
    """
    return {
        Cell(row["scenario"], row["law"], float(row["start"])): {
            HALCYON: row["alone"].strip(),
            BALANCED: row["installed"].strip(),
            row["peer"]: row["near"].strip(),
        }
        for row in _ROW.finditer(text)
    }


def compare(page: Mapping[Cell, Mapping[str, str]], points: Mapping[Cell, Sequence[PolicyPoint]]) -> list[Difference]:
    """Return the figures on the page that differ from the results of the new runs, or for which there is no new run."""
    differences = []
    for cell, figures_by_policy in page.items():
        texts = {point.policy: _text(point) for point in points.get(cell, ()) if point.outcomes}
        differences += [
            Difference(str(cell), policy, text, texts.get(policy, "not run"))
            for policy, text in figures_by_policy.items()
            if texts.get(policy) != text
        ]
    return differences


def _text(point: PolicyPoint) -> str:
    return " | ".join((figures(point), *(pace(point) if point.policy == HALCYON else ())))


def main(argv: Sequence[str]) -> int:
    """Check a page, by default the one in the repository. Return 1 if a figure differs, otherwise 0."""
    path = Path(argv[0] if argv else "docs/benchmarks/scaling.md")
    out = Path("build/bench")
    page = shown(path.read_text())
    table_cells = {(cell.scenario, cell.law, cell.start_s): cell for cell in cells(full=True)}
    expected = {table_cells[cell.scenario, cell.law, cell.start_s]: policies for cell, policies in page.items()}
    table = Table(Store(out / "cells"), jobs=2, names=(HALCYON, BALANCED))
    points = table.listed({cell: [parsed(policy) for policy in policies] for cell, policies in expected.items()})
    differences = compare(expected, points)
    out.mkdir(parents=True, exist_ok=True)
    result = {
        "rows": len(expected),
        "figures": sum(map(len, expected.values())),
        "different": [asdict(difference) for difference in differences],
    }
    (out / "scaling-check.json").write_bytes(
        orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    sys.stdout.write(f"{result['figures']} figures in {result['rows']} rows, {len(differences)} differ from {path}\n")
    for difference in differences:
        sys.stdout.write(
            f"  {difference.cell}, {difference.policy}: the page has {difference.shown}, a run gives {difference.measured}\n"
        )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
