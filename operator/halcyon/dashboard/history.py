"""An hour of each model's past, a point every 10 s, in memory: 9.3 KiB a model, however much happens.

A row is 26 bytes in a ring, because 5,000 models have 16 million numbers: as Python objects they would take 30 times as much.
Nothing of it survives the process; arrivals of earlier days are the planner's (`source.Past`), everything else is Prometheus'.
No clock: `at` is the caller's, in seconds since the epoch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from halcyon.dashboard.source import Name, Reading

STEP_S = 10
KEPT = 360
FIELDS = ("replicas", "ready", "desired", "gpu", "rate", "waiting", "latency", "batch", "errors")
"""replicas: asked for in the spec. gpu: percent. rate: requests/s. latency: ms. batch: rows. errors: percent of the requests."""
_ROW = struct.Struct("<4H4fH")
_NONE = 0xFFFF
"""Stands for "not known" in the ring only, as NaN does among the floats."""
_EMPTY = _ROW.pack(_NONE, _NONE, _NONE, _NONE, math.nan, math.nan, math.nan, math.nan, _NONE)
_TENTHS = 10.0
"""Percentages are kept in tenths."""

Values = tuple[float | None, ...]
"""In the order of `FIELDS`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the ModelDeployment says of its replicas."""

    replicas: int | None
    ready: int | None
    desired: int | None


class _Ring:
    """The last `KEPT` steps of one model. Steps are counted from the epoch."""

    __slots__ = ("_first", "_last", "_rows")

    def __init__(self) -> None:
        self._first = self._last = -1
        self._rows = bytearray(_ROW.size * KEPT)

    def put(self, step: int, row: bytes) -> None:
        """The row of this step; steps in between that nobody has put are not known.

        A clock that was set back: a little, and the row is left out; by more than what is kept, and the ring begins anew.
        """
        if self._last >= 0 and self._last - KEPT < step < self._last:
            return
        if not 0 <= step - self._last < KEPT or self._last < 0:
            self._first = self._last = step
        for missed in range(self._last + 1, step):
            self._set(missed, _EMPTY)
        self._set(step, row)
        self._last = step
        self._first = max(self._first, step - KEPT + 1)

    def rows(self, last: int) -> Iterator[Values]:
        """The newest `last` rows, oldest first."""
        for step in range(max(self._first, self._last - last + 1), self._last + 1):
            yield _unpacked(_ROW.unpack_from(self._rows, step % KEPT * _ROW.size))

    def newest(self) -> Values:
        """The newest row."""
        return _unpacked(_ROW.unpack_from(self._rows, self._last % KEPT * _ROW.size))

    @property
    def last(self) -> int:
        """The newest step; -1 where there is none."""
        return self._last

    def _set(self, step: int, row: bytes) -> None:
        start = step % KEPT * _ROW.size
        self._rows[start : start + _ROW.size] = row


@dataclass(frozen=True, slots=True)
class Series:
    """Rows with their times."""

    end: float
    """Time of the newest, in seconds since the epoch; they lie `STEP_S` apart."""
    rows: Sequence[Values]
    """Oldest first."""


class History:
    """The rings of every model."""

    def __init__(self) -> None:
        self._rings: dict[Name, _Ring] = {}

    def add(self, name: Name, at: float, counts: Counts, reading: Reading) -> None:
        """What is known of a model at this time. A second one within a step takes the place of the first."""
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = _Ring()
        ring.put(int(at // STEP_S), _packed(counts, reading))

    def keep(self, names: Iterable[Name]) -> None:
        """Forget the models that are not among these."""
        for gone in self._rings.keys() - set(names):
            del self._rings[gone]

    def series(self, name: Name, last: int = KEPT) -> Series:
        """The newest `last` points of a model; none where none were taken."""
        ring = self._rings.get(name)
        if ring is None or ring.last < 0:
            return Series(0.0, ())
        return Series(float(ring.last * STEP_S), tuple(ring.rows(last)))

    def newest(self, name: Name) -> Values | None:
        """The newest point of a model; None where none was taken."""
        ring = self._rings.get(name)
        return None if ring is None else ring.newest()

    def __len__(self) -> int:
        return len(self._rings)


def _packed(counts: Counts, reading: Reading) -> bytes:
    errors = None if reading.errors is None else reading.errors * 100
    return _ROW.pack(
        _short(counts.replicas),
        _short(counts.ready),
        _short(counts.desired),
        _short(reading.gpu, _TENTHS),
        *(_float(v) for v in (reading.rate, reading.waiting, reading.latency_ms, reading.batch)),
        _short(errors, _TENTHS),
    )


def _unpacked(row: tuple[float, ...]) -> Values:
    replicas, ready, desired, gpu, *floats, errors = row
    counts = (None if value == _NONE else value for value in (replicas, ready, desired))
    known = (None if math.isnan(value) else float(f"{value:.4g}") for value in floats)
    tenths = (None if value == _NONE else value / _TENTHS for value in (gpu, errors))
    return (*counts, next(tenths), *known, next(tenths))


def _short(value: float | None, scale: float = 1.0) -> int:
    """A number of 16 bits; one that is larger than these can tell becomes the largest."""
    if value is None or not math.isfinite(value):
        return _NONE
    return min(max(round(value * scale), 0), _NONE - 1)


def _float(value: float | None) -> float:
    return math.nan if value is None or not abs(value) < 3e38 else value
