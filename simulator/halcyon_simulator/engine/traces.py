"""Recorded loads: arrival times from a user's CSV file, and from the excerpts bundled in `data/`.

data/README.md lists the sources, licences and changes of the excerpts. Out of scope: loads generated from rates
(`load`).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.case import Times
from halcyon_simulator.engine.load import merged

COLUMN = "t_s"
MAX_DAYS = 90
"""Maximum length of a trace, in days. Longer traces are usually in milliseconds, and would be simulated for hours."""
WINDOW_S = 600.0
"""Duration of one window in a production trace by clients, in seconds."""
CLIENT_DAYS = 14
CLIENT_WINDOWS = int(CLIENT_DAYS * 86400 / WINDOW_S)
_EXAMPLE = "for example:\nt_s\n0.0\n0.25\n1.8"
_FILL = 0.05
"""Maximum share by which the mean rate of the chosen clients may fall below the requested rate."""
_BUSIEST = 2.4
"""Maximum ratio of the rate in a client's busiest window to the requested mean rate. It is the ratio in the whole
trace: 465 to 195.8 requests/s."""
_DRAWN = 1.05
"""Number of arrival gaps that are drawn first, relative to the expected number. If a row of a trace needs more gaps,
they are drawn in a further round."""


class TraceError(ValueError):
    """A file of arrival times can't be read. The message is for the user."""


def read(path: Path) -> Times:
    """Return the arrival times in a CSV file (also .gz) with a column `t_s`: seconds from any start, in any order.

    Returns:
        Ascending times, beginning at 0.

    Raises:
        TraceError: the file is invalid; the message gives the file, the line, the value and an example.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(
            f"trace {path} can't be read: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
        ) from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"trace {path} is no text in UTF-8 (byte {error.start}); it has to be a CSV file, {_EXAMPLE}"
        ) from error
    rows = csv.reader(io.StringIO(text))
    head = [name.strip() for name in next(rows, [])]
    if COLUMN not in head:
        columns = ", ".join(head) or "none"
        raise TraceError(
            f"trace {path} has no column {COLUMN} (arrival times in seconds); its columns: {columns}; {_EXAMPLE}"
        )
    column = head.index(COLUMN)
    try:
        times = np.array([_time(path, rows.line_num, row, column) for row in rows if row], dtype=np.float64)
    except csv.Error as error:
        raise TraceError(f"trace {path}, line {rows.line_num} is no CSV: {error}; {_EXAMPLE}") from error
    if len(times) == 0:
        raise TraceError(f"trace {path} has a header and no rows; it has to have one row per request, {_EXAMPLE}")
    times.sort()
    if (days := float(times[-1] - times[0]) / 86400) > MAX_DAYS:
        raise TraceError(
            f"trace {path} is {days:,.0f} days long, and a simulation at most {MAX_DAYS}; {COLUMN} is in seconds, for "
            "example 12.5 and not 12500"
        )
    return np.asarray(times - times[0], dtype=np.float64)


def _time(path: Path, line: int, row: list[str], column: int) -> float:
    value = row[column] if column < len(row) else ""
    try:
        time = float(value)
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise TraceError(
            f"trace {path}, line {line}: {COLUMN} is {value!r}; it has to be a number of seconds, for example 12.5"
        )
    return time


@lru_cache(maxsize=4)
def bundled(name: str) -> Times:
    """Return the arrival times of a bundled excerpt: `azure_code`, `mooncake_synthetic` or `aibrix_up_and_down`.

    The array is shared, so callers must not change it.
    """
    times = np.array(_lines(f"{name}.csv.gz")[1:], dtype=np.float64)
    times.setflags(write=False)
    return times


def worldcup_minutes() -> tuple[float, ...]:
    """Return the number of requests in each of the 181 minutes of the flash crowd of 29 June 1998."""
    return tuple(float(line.split(",")[1]) for line in _lines("worldcup98_minutes.csv")[1:])


@dataclass(frozen=True)
class Clients:
    """Production trace by clients.

    It has one row per client and window of 600 s with requests, ordered by client and window.
    """

    client: NDArray[np.int64]
    window: NDArray[np.int64]
    rate_rps: NDArray[np.float64]
    weibull: NDArray[np.bool_]
    """Whether the gaps of each row follow a Weibull distribution; if not, they follow a Gamma distribution."""
    shape: NDArray[np.float64]

    def rows(self, selected: NDArray[np.bool_]) -> Clients:
        """Return the trace with only the selected rows."""
        return Clients(
            self.client[selected],
            self.window[selected],
            self.rate_rps[selected],
            self.weibull[selected],
            self.shape[selected],
        )

    @property
    def mean_rps(self) -> float:
        """Mean rate of the whole trace, in requests per second."""
        return float(self.rate_rps.sum()) / CLIENT_WINDOWS


@lru_cache(maxsize=1)
def clients() -> Clients:
    """Return the trace m_large of ServeGen: 157 clients, 14 days, 195.8 requests per second on average."""
    columns = list(zip(*(line.split(",") for line in _lines("servegen_m_large.csv.gz")[1:]), strict=True))
    return Clients(
        client=np.array(columns[0], dtype=np.int64),
        window=np.array(columns[1], dtype=np.int64),
        rate_rps=np.array(columns[2], dtype=np.float64),
        weibull=np.array(columns[3]) == "W",
        shape=np.array(columns[4], dtype=np.float64),
    )


def chosen(trace: Clients, *, mean_rps: float, rng: np.random.Generator) -> Clients:
    """Return the trace reduced to random clients whose total mean rate is within 5 % of `mean_rps`.

    Clients are drawn one by one. A client is skipped if the total would exceed `mean_rps`. It is also skipped if the
    rate in its busiest window is above `_BUSIEST` times `mean_rps`, because a single client of this kind would dominate
    the load. In the whole trace, no client exceeds this ratio to the trace's own mean.

    Raises:
        ValueError: the trace's rate is too low.
    """
    if not 0 < mean_rps <= trace.mean_rps:
        raise ValueError(
            f"the trace by clients thinned to {mean_rps:g} requests/s: it has {trace.mean_rps:.1f}; for example 10"
        )
    names = np.unique(trace.client)
    means = np.bincount(trace.client, weights=trace.rate_rps, minlength=int(names[-1]) + 1) / CLIENT_WINDOWS
    busiest = np.zeros(len(means))
    np.maximum.at(busiest, trace.client, trace.rate_rps)
    names_chosen: list[int] = []
    sum_rps = 0.0
    for name in rng.permutation(names):
        if sum_rps + means[name] <= mean_rps * (1 + 1e-9) and busiest[name] <= _BUSIEST * mean_rps:
            names_chosen.append(int(name))
            sum_rps += float(means[name])
        if sum_rps >= mean_rps * (1 - _FILL):
            break
    return trace.rows(np.isin(trace.client, names_chosen))


def replayed(trace: Clients, *, rng: np.random.Generator) -> Times:
    """Return random arrival times for a trace by clients.

    Each row's window is a stationary renewal process with the distribution and shape of the row. Its gaps are scaled to
    a mean of 1 / rate, because the fitted scale alone doesn't give this rate (see data/README.md).
    """
    scale = _scales(trace)
    parts: list[Times] = []
    active = np.arange(len(scale))
    reached = _first_gaps(trace, scale, rng)
    while True:
        inside = reached < WINDOW_S
        active, reached = active[inside], reached[inside]
        if len(active) == 0:
            break
        # The last time reached is an arrival. Rows that haven't reached the end of their window continue from there.
        number = ((WINDOW_S - reached) * trace.rate_rps[active] * _DRAWN).astype(np.int64) + 4
        row = np.repeat(active, number)
        sums = np.cumsum(_gaps(trace, row, scale, rng))
        ends = np.cumsum(number) - 1
        before = np.concatenate(([0.0], sums[ends[:-1]]))
        times = sums + np.repeat(reached - before, number)
        offsets = trace.window[active] * WINDOW_S
        parts.append(reached + offsets)
        reached = times[ends]
        in_window = times < WINDOW_S
        in_window[ends] = False
        parts.append((times + np.repeat(offsets, number))[in_window])
    return merged(parts)


def _scales(trace: Clients) -> NDArray[np.float64]:
    """Return, for each row, the scale of its distribution for which the gaps have a mean of 1 / rate."""
    weibull = np.array([math.gamma(1 + 1 / k) if w else 1.0 for k, w in zip(trace.shape, trace.weibull, strict=True)])
    return np.asarray(np.where(trace.weibull, 1 / weibull, 1 / trace.shape) / trace.rate_rps, dtype=np.float64)


def _gaps(
    trace: Clients, row: NDArray[np.int64], scale: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw one random gap for each row number in `row`, from the distribution of the row."""
    gaps = np.empty(len(row))
    weibull = trace.weibull[row]
    of_weibull, of_gamma = row[weibull], row[~weibull]
    gaps[weibull] = rng.standard_exponential(len(of_weibull)) ** (1 / trace.shape[of_weibull])
    gaps[~weibull] = rng.standard_gamma(trace.shape[of_gamma])
    return gaps * scale[row]


def _first_gaps(trace: Clients, scale: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the time from the start of each window to its first arrival, for processes that started long ago.

    This is a random part of a gap that is chosen with a probability proportional to its length.
    """
    weighted = np.where(
        trace.weibull,
        rng.standard_gamma(1 + 1 / trace.shape) ** (1 / trace.shape),
        rng.standard_gamma(trace.shape + 1),
    )
    return np.asarray(rng.random(len(scale)) * weighted * scale, dtype=np.float64)


def _lines(name: str) -> list[str]:
    """Return the text lines of a bundled file."""
    raw = (files("halcyon_simulator") / "data" / name).read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode().splitlines()
