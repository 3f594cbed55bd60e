"""Rows of build/bench/reaction.json, and percentiles. Parts that are not run again keep their rows."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "build" / "bench" / "reaction.json"
PARTS = ("one", "fleet", "loop", "step", "peers", "parity")
"""Parts in the order of the file and of the page."""

Figure = float | int | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run. Values that don't apply or were not measured are None or empty."""

    part: str
    what: str
    """Short description of the run."""
    models: int
    actuator: str | None
    hpa_sync_s: float | None = None
    step_to_scale_s: tuple[float, ...] = ()
    """Seconds from the increase of the load until the watch event with a higher spec.replicas arrives at this
    process."""
    cpu_cores: float | None = None
    """CPU seconds per second of the operator's process, or of the loop if there is no operator."""
    rss_mib: float | None = None
    """Largest resident memory during the run, in MiB."""
    decision_us_p50: float | None = None
    """Median duration of one model's turn in the loop in microseconds, from the operator's own measurement: reading,
    decision, and subsequent work."""
    decision_us_p99: float | None = None
    decision_age_p99_s: float | None = None
    """Age of a model's last decision in seconds, as the p99 over all models and times."""
    stand_ins: tuple[str, ...] = ()
    """Descriptions of the components that were simulated."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """Further figures that only this part has. They are written with the others."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row in the format of the file."""
        plain = asdict(self)
        figures = plain.pop("figures")
        times = self.step_to_scale_s
        shares = {f"step_to_scale_p{share}_s": quantile(times, share / 100) for share in (50, 99)} if times else {}
        return {**plain, **shares, **figures}


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values doesn't exceed; None if there are no values.

    The result is not interpolated, so with few values the 99th percentile is the largest one.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def merged(earlier: Sequence[dict[str, Any]], part: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the file's rows with those of one part replaced, in the order of `PARTS`."""
    others = [row for row in earlier if row["part"] != part]
    return sorted([*others, *(row.to_dict() for row in rows)], key=lambda row: PARTS.index(row["part"]))


def read(file: Path = FILE) -> list[dict[str, Any]]:
    """Return the rows in the file; empty if it doesn't exist."""
    try:
        rows = json.loads(file.read_text())
    except FileNotFoundError:
        return []
    return [row for row in rows if row.get("part") in PARTS]


def write(part: str, rows: Sequence[Row], file: Path = FILE) -> None:
    """Replace the rows of one part in the file atomically: a reader sees either the old or the new content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(json.dumps(merged(read(file), part, rows), indent=1) + "\n")
    new.replace(file)
