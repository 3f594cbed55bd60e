"""A row of build/bench/reaction.json, percentiles, and the file: parts that were not run again keep their rows."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "build" / "bench" / "reaction.json"
PARTS = ("one", "fleet", "loop", "step", "peers", "parity")
"""In the order of the file and of the page."""

Figure = float | int | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run. None, or an empty list, where a figure does not apply or could not be had."""

    part: str
    what: str
    """The run in a few words."""
    models: int
    actuator: str | None
    hpa_sync_s: float | None = None
    step_to_scale_s: tuple[float, ...] = ()
    """From the moment that the load grew to the arrival, here, of the watch event with a higher spec.replicas."""
    cpu_cores: float | None = None
    """CPU seconds per second of the operator's process (of the loop's own, where there is no operator)."""
    rss_mib: float | None = None
    """Largest resident size that was seen in the run."""
    decision_us_p50: float | None = None
    """Of one model's turn in the loop, by the operator's own clock: reading, decision, and what follows from it."""
    decision_us_p99: float | None = None
    decision_age_p99_s: float | None = None
    """How old a model's last decision is, over all models and moments."""
    stand_ins: tuple[str, ...] = ()
    """What was not real, in words."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """What only this part has; written beside the others."""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the file."""
        plain = asdict(self)
        figures = plain.pop("figures")
        times = self.step_to_scale_s
        shares = {f"step_to_scale_p{share}_s": quantile(times, share / 100) for share in (50, 99)} if times else {}
        return {**plain, **shares, **figures}


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed; None of none.

    Not interpolated: with few values the 99th percentile is the largest, and says so honestly.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def merged(known: Sequence[dict[str, Any]], part: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The file's rows with those of one part replaced, in the order of `PARTS`."""
    kept = [row for row in known if row["part"] != part]
    return sorted([*kept, *(row.to_dict() for row in rows)], key=lambda row: PARTS.index(row["part"]))


def read(file: Path = FILE) -> list[dict[str, Any]]:
    """The rows in the file; none where there is no file."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return []
    return [row for row in found if row.get("part") in PARTS]


def write(part: str, rows: Sequence[Row], file: Path = FILE) -> None:
    """Replace the rows of one part; who reads meanwhile sees the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(json.dumps(merged(read(file), part, rows), indent=1) + "\n")
    new.replace(file)
