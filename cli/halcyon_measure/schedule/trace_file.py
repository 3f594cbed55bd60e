"""Arrival times from a CSV file with a column `t_s`, as in the simulator."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from pathlib import Path

from halcyon_measure.errors import ScenarioError
from halcyon_measure.schedule.scenario import MAX_DURATION_S, MAX_REQUESTS

_COLUMN = "t_s"


def read(path: Path, *, scale: float = 1.0) -> tuple[float, ...]:
    """Read the arrival times in seconds since the first arrival, divided by `scale`.

    For example, a `scale` of 2 replays the trace at twice its rate.

    Raises:
        ScenarioError: the file can't be read, has no column t_s, has an invalid time, isn't sorted, or is too long.
    """
    if not (math.isfinite(scale) and 0 < scale <= 1000):
        raise ScenarioError(f"scale is {scale:g}; it must be above 0 and at most 1000, for example 2")
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ScenarioError(f"{path}: unreadable as CSV or .csv.gz: {error}") from None
    rows = csv.DictReader(io.StringIO(text))
    try:
        times = _times(path, rows)
    except csv.Error as error:
        raise ScenarioError(f"{path}, line {rows.line_num}: not CSV: {error}") from None
    if not times:
        raise ScenarioError(f"{path}: no arrival; each line after the first is a time in seconds, for example 0.25")
    if len(times) > MAX_REQUESTS:
        raise ScenarioError(f"{path}: {len(times)} arrivals; at most {MAX_REQUESTS} are possible")
    first = times[0]
    if times[-1] == first:
        raise ScenarioError(
            f"{path}: all {len(times)} arrivals are at {first:g} s, so there is no rate; for example --scenario offline "
            f"--requests {len(times)}"
        )
    length = (times[-1] - first) / scale
    if length > MAX_DURATION_S:
        raise ScenarioError(
            f"{path}: {length:g} s long at scale {scale:g}; at most {MAX_DURATION_S:g} s are possible, for example "
            f"--scale {math.ceil(scale * length / MAX_DURATION_S)}"
        )
    return tuple((time - first) / scale for time in times)


def _times(path: Path, rows: csv.DictReader[str]) -> list[float]:
    if _COLUMN not in (rows.fieldnames or ()):
        raise ScenarioError(
            f"{path}: no column {_COLUMN} in {rows.fieldnames}; its first line is for example {_COLUMN}"
        )
    times: list[float] = []
    for row in rows:
        time = _time(row[_COLUMN], f"{path}, line {rows.line_num}")
        if times and time < times[-1]:
            raise ScenarioError(
                f"{path}, line {rows.line_num}: {time:g} comes after {times[-1]:g}; sort the file by {_COLUMN}"
            )
        times.append(time)
    return times


def _time(text: str | None, location: str) -> float:
    try:
        time = float(text or "")
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise ScenarioError(f"{location}: {_COLUMN} is {text!r}; it must be a time in seconds, for example 0.25")
    return time
