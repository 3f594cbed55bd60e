"""An hour of each model's past, a point every 10 s, in memory: 9.0 KiB a model, however much happens.

A row is 25 bytes in a ring, because 5,000 models have 25 million numbers: as Python objects they would take 30 times as much.
Nothing of it survives the process; arrivals of earlier days are the planner's (`source.Past`), everything else is Prometheus'.
No clock: `at` is the caller's, in seconds since the epoch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from halcyon.dashboard.client_latency import NOBODY_ANSWERED, Quantiles
from halcyon.dashboard.ports import ModelNumbers, Name

STEP_S = 10
KEPT = 360
_NUMBERS = ("rate", "waiting", "latency", "p50", "p95", "p99", "batch")
FIELDS = ("replicas", "ready", "desired", "gpu", *_NUMBERS, "refused", "lost", "failed", "errors")
"""replicas: asked for in the spec. gpu: percent. rate: requests/s. latency: ms, the mean inside Triton; p50, p95 and p99 are those
of clients. batch: rows. refused, lost, failed: percent of the requests; errors: the three together."""
_ROW = struct.Struct("<11H3B")
_NONE, _NO_SHARE = 0xFFFF, 0xFF
"""Stand for "not known", in the ring only."""
_EMPTY = _ROW.pack(*[_NONE] * 11, *[_NO_SHARE] * 3)
_TENTHS = 10.0
"""Utilisation is kept in tenths of a percent."""
_MIN = 1e-4
_STEP = math.log(1e13) / (_NONE - 2)
"""Numbers are kept by their logarithms, from `_MIN` to 1e9: 0.02 % off at most, less than the three digits that are told."""
_MIN_PERCENT = 0.01
_SHARE_STEP = math.log(1e4) / (_NO_SHARE - 2)
"""Shares in a byte, from `_MIN_PERCENT` to 100 %: 2 % of themselves off at most."""

Values = tuple[float | None, ...]
"""In the order of `FIELDS`."""


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
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


class ChartHistory:
    """The rings of every model."""

    def __init__(self) -> None:
        self._rings: dict[Name, _Ring] = {}

    def add(
        self,
        name: Name,
        at: float,
        counts: ReplicaCounts,
        reading: ModelNumbers,
        quantiles: Quantiles = NOBODY_ANSWERED,
    ) -> None:
        """What is known of a model at this time. A second one within a step takes the place of the first."""
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = _Ring()
        ring.put(int(at // STEP_S), _packed(counts, reading, quantiles))

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


def _packed(counts: ReplicaCounts, reading: ModelNumbers, quantiles: Quantiles) -> bytes:
    # One by one: this is what an idle dashboard does most.
    return _ROW.pack(
        _short(counts.replicas),
        _short(counts.ready),
        _short(counts.desired),
        _short(reading.gpu, _TENTHS),
        _logarithm(reading.rate),
        _logarithm(reading.waiting),
        _logarithm(reading.latency_ms),
        _logarithm(quantiles.p50),
        _logarithm(quantiles.p95),
        _logarithm(quantiles.p99),
        _logarithm(reading.batch),
        _share(reading.refused, reading.rate),
        _share(reading.lost, reading.rate),
        _share(reading.failed, reading.rate),
    )


def _unpacked(row: tuple[int, ...]) -> Values:
    replicas, ready, desired, gpu, *numbers = row
    shares = [_percent(kept) for kept in numbers[len(_NUMBERS) :]]
    known = [share for share in shares if share is not None]
    return (
        *(None if value == _NONE else value for value in (replicas, ready, desired)),
        None if gpu == _NONE else gpu / _TENTHS,
        *(_number(kept) for kept in numbers[: len(_NUMBERS)]),
        *shares,
        min(float(f"{sum(known):.2g}"), 100.0) if known else None,
    )


def _short(value: float | None, scale: float = 1.0) -> int:
    """A number of 16 bits; one that is larger than these can tell becomes the largest."""
    if value is None or not math.isfinite(value):
        return _NONE
    return min(max(round(value * scale), 0), _NONE - 1)


def _logarithm(value: float | None) -> int:
    """0 stands for itself, and for what is too little to be told from it."""
    if value is None or not math.isfinite(value):
        return _NONE
    return 0 if value < _MIN else min(1 + round(math.log(value / _MIN) / _STEP), _NONE - 1)


def _number(kept: int) -> float | None:
    if kept in (0, _NONE):
        return None if kept else 0.0
    return float(f"{_MIN * math.exp((kept - 1) * _STEP):.3g}")


def _share(value: float | None, of: float | None) -> int:
    """A rate's share of another one. One that is not 0 never reads as 0."""
    if value is None or not of or not math.isfinite(value) or not math.isfinite(of):
        return _NO_SHARE
    if value <= 0:
        return 0
    percent = min(max(value / of * 100, _MIN_PERCENT), 100.0)
    return 1 + round(math.log(percent / _MIN_PERCENT) / _SHARE_STEP)


def _percent(kept: int) -> float | None:
    if kept in (0, _NO_SHARE):
        return None if kept else 0.0
    return float(f"{_MIN_PERCENT * math.exp((kept - 1) * _SHARE_STEP):.2g}")
