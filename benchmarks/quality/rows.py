"""Rows of the quality tables, the function that decides whether a row holds, and the files and pages of the tables.

A table is docs/quality/data/NAME.json, `{"rows": [...]}`, with its page docs/quality/NAME.md; both are in git, so that a
record in a new clone keeps the rows of all others. build/quality/NAME.json is a copy beside the other results of this machine. Each
measurement records its own rows, and the rows of the others stay. The raw samples of a row, which git doesn't have, are in
build/quality/raw/NAME-ID.json.
"""

from __future__ import annotations

import json
import operator
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "quality"
PAGES = ROOT / "docs" / "quality"
DATA = PAGES / "data"
SIGNS: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
TITLES = {
    "house": "The house: structure, names and words",
    "right": "Right for every model and every client",
    "adoption": "The first quarter of an hour",
    "hold": "Against tenants, clients and faults, and at size",
    "measure": "Measure a served model",
    "tune": "Tune it, teach the autoscaler, and run data sets beside the users",
}
"""Title of each table's page."""
EXPECTED: Mapping[str, Sequence[str]] = {
    "right": (
        *("1.1", "1.2", "1.3", "1.4"),
        *("2.1", "2.2", "2.3"),
        *("3.1", "3.2"),
        *("4.1", "4.2", "4.3", "4.4", "4.5"),
        *("5.1", "5.2", "5.3", "5.4"),
        *("6.1", "6.2"),
        *("7.1", "7.2"),
        *("8.1", "8.2"),
    ),
}
"""Ids of the rows that a table must have, by table. A table without an entry has the rows that were recorded."""


@dataclass
class Row:
    """One line of a table."""

    id: int | str
    """Line of the table: 1, or section and line as in `2.1`."""
    what: str
    value: Mapping[str, Any]
    """Measurements by name. None: not measured."""
    target: str
    limits: Sequence[tuple[str, float, str]]
    """Targets as (key in `value`, bound, `<=`, `>=` or `==`)."""
    command: str = "make quality"
    stand_ins: str = "none"
    """What was simulated or replaced, in words."""
    why: str = ""
    """Reason why a measurement is missing or falls short."""
    n: int = 1
    """Number of samples."""
    law: str = "counted"
    """Execution time of the model, such as `80 + 6 b ms, batch 8`."""
    load: str = "none"
    """Load during the measurement, such as `Poisson, 150/s, 60 s`."""
    raw: Any = field(default=None, repr=False)
    """Raw samples, as JSON."""


def holds(row: Row) -> bool:
    """Return True if every measurement in the target exists and is within its bound."""
    values = [(row.value.get(name), bound, sign) for name, bound, sign in row.limits]
    return bool(values) and all(value is not None and SIGNS[sign](value, bound) for value, bound, sign in values)


def record(table: str, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Write these rows into the table's file, in place of earlier ones with the same ids, and write its page.

    Returns all rows of the table, sorted by id.
    """
    (OUT / "raw").mkdir(parents=True, exist_ok=True)
    by_id = {str(row["id"]): row for row in read(table)}
    for row in rows:
        name = f"{table}-{row.id}.json"
        (OUT / "raw" / name).write_text(json.dumps(row.raw, indent=1, default=str))
        entry = {key: value for key, value in asdict(row).items() if key not in {"limits", "raw"}}
        by_id[str(row.id)] = entry | {"holds": holds(row), "commit": commit(), "date": today(), "raw": f"raw/{name}"}
    written = sorted(by_id.values(), key=lambda row: [int(part) for part in str(row["id"]).split(".")])
    text = json.dumps({"rows": written}, indent=1) + "\n"
    DATA.mkdir(parents=True, exist_ok=True)
    for file in (DATA / f"{table}.json", OUT / f"{table}.json"):
        replace(file, text)
    write_page(table)
    return written


def write_page(table: str) -> None:
    """Write the table's page from its file, for example after a merge of two records."""
    replace(PAGES / f"{table}.md", page(table, read(table)))


def read(table: str) -> list[dict[str, Any]]:
    """Return the rows of the table's file; empty if there is no file."""
    try:
        rows: list[dict[str, Any]] = json.loads((DATA / f"{table}.json").read_text())["rows"]
    except FileNotFoundError:
        return []
    return rows


def raw(table: str, row: str) -> Any:
    """Return the raw samples of a row that was recorded on this machine; None if there are none."""
    try:
        return json.loads((OUT / "raw" / f"{table}-{row}.json").read_text())
    except FileNotFoundError:
        return None


def short(table: str) -> list[str]:
    """Return a sentence for each recorded row that falls short."""
    return [
        f"{table} {row['id']} falls short: {row['what']}: {json.dumps(row['value'])}; target {row['target']}"
        + (f"; {row['why']}" if row["why"] else "")
        for row in read(table)
        if not row["holds"]
    ]


def missing(table: str) -> list[str]:
    """Return a sentence for each expected row that isn't recorded."""
    recorded = {str(row["id"]) for row in read(table)}
    return [f"{table} {row} isn't measured" for row in EXPECTED.get(table, ()) if row not in recorded]


def page(table: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table's page in Markdown."""
    lines = [
        f"# {TITLES[table]}",
        "",
        f"Written by the measurements from data/{table}.json, not by hand; change benchmarks/quality or the command of the",
        "row. Each row has the commit that it was measured on.",
        "",
        "| id | what | value | target | holds | measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        value = "; ".join(f"{name} {plain(entry)}" for name, entry in row["value"].items())
        description = row["what"] + (f". Stand-in: {row['stand_ins']}" if row["stand_ins"] != "none" else "")
        why = f" ({row['why']})" if row["why"] else ""
        measured = f"{row['commit']}, {row['date']}, n = {row['n']}, `{row['command']}`"
        if row["load"] != "none":
            measured += f", {row['law']}, {row['load']}"
        cells = (row["id"], description, value + why, row["target"], "yes" if row["holds"] else "no", measured)
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def commit() -> str:
    """Return the short id of the commit that is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def today() -> str:
    """Return today's date in UTC, such as `2026-11-28`."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def plain(value: Any) -> str:
    """Return a measurement in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{v} {k}" for k, v in value.items())
    return "unknown" if value is None else str(value)


def replace(file: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(file)
