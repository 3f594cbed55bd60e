"""History of each model for its charts: one hour, with a point every 10 s. It takes at most 9.0 KiB per model.

A point is a row of 25 bytes. As Python objects, the 25 million numbers of 5,000 models would take 30 times as much
memory. Points of an idle model are equal for hours, so successive equal points are stored as one run of 29 bytes. A
model with more than `MAX_RUNS` runs has a ring buffer of all rows instead.

The history is lost when the process ends. The planner stores the arrivals of earlier days (`ports.Past`), and
Prometheus can store all other values. This module reads no clock; the caller passes `at`, in seconds since the epoch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from halcyon.dashboard.client_latency import NO_RESPONSES, Quantiles
from halcyon.dashboard.ports import ModelNumbers, Name

STEP_S = 10
MAX_POINTS = 360
MAX_STEPS_BACK = 6
"""Maximum number of steps by which the clock may be set back without losing the history: one minute."""
MAX_RUNS = 120
"""Maximum number of runs in a history. With more runs, the history changes to a ring buffer, which takes about three
times as much memory as `MAX_RUNS` runs."""
_NUMBERS = ("rate", "waiting", "in_triton", "p50", "p95", "p99", "batch")
FIELDS = ("replicas", "ready", "desired", "gpu", *_NUMBERS, "rejected", "lost", "failed", "errors")
"""Fields of a point, in order.

`replicas` is the number of replicas in force, `gpu` the GPU utilisation in percent, `rate` the number of requests per
second, and `in_triton` the mean time inside Triton in milliseconds. `p50`, `p95` and `p99` are quantiles of the client
latency in milliseconds. `batch` is the number of items per batch. `rejected`, `lost` and `failed` are shares of the
requests in percent, and `errors` is their sum.
"""
_RATE, _P99 = FIELDS.index("rate"), FIELDS.index("p99")
_ROW = struct.Struct("<11H3B")
_NONE, _NO_SHARE = 0xFFFF, 0xFF
"""Codes that stand for an unknown value in a stored row. The first one is for numbers, the second one for shares."""
_EMPTY = _ROW.pack(*[_NONE] * 11, *[_NO_SHARE] * 3)
_RUN = struct.Struct(f"<I{_ROW.size}s")
"""Run of equal points: the step of the first one, and the row."""
_TENTHS = 10.0
"""Factor by which the GPU utilisation is multiplied before it is stored, so that the unit is a tenth of a percent."""
_MIN = 1e-4
_STEP = math.log(1e13) / (_NONE - 2)
"""Difference between the logarithms of two numbers whose 16-bit codes are successive.

Numbers from `_MIN` to 1e9 are stored as logarithms. The error is at most 0.02 %, which is not visible in the three
digits that are shown.
"""
_MIN_PERCENT = 0.01
_SHARE_STEP = math.log(1e4) / (_NO_SHARE - 2)
"""Difference between the logarithms of two shares whose 8-bit codes are successive.

Shares from `_MIN_PERCENT` to 100 % are stored in one byte. The relative error is at most 2 %.
"""

Values = tuple[float | None, ...]
"""Values of one point of a model's history, in the order of `FIELDS`. A value is None if it is unknown."""


class CurrentLoad(NamedTuple):
    """Load of a model at one point of its history. A value is None if it is unknown."""

    rate: float | None = None
    """Requests per second to the model."""
    p99: float | None = None
    """99th percentile of the client latency, in milliseconds."""
    errors: float | None = None
    """Share of the requests that were rejected, lost or failed, in percent."""


NO_LOAD = CurrentLoad()


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Replicas from the spec and the status of a ModelDeployment."""

    replicas: int | None
    ready: int | None
    desired: int | None


class _Ring:
    """Values of one model in the last `MAX_POINTS` steps. Steps are counted from the epoch.

    They are stored as runs of equal rows, or as a ring buffer of all rows if there are many runs.
    """

    __slots__ = ("_bytes", "_first", "_has_runs", "_last")

    def __init__(self) -> None:
        self._first = self._last = -1
        self._has_runs = True
        self._bytes = bytearray()
        """Runs of equal rows in ascending order, or the ring buffer of all rows."""

    def put(self, step: int, row: bytes) -> None:
        """Store the values of a step. The values of steps that were skipped are unknown.

        If the clock was set back by at most `MAX_STEPS_BACK`, ignore the values. If it was set back by more, empty the
        history first, because the newest values are also those in the table of models.
        """
        if self._last >= 0 and self._last - MAX_STEPS_BACK <= step < self._last:
            return
        if not 0 <= step - self._last < MAX_POINTS or self._last < 0:
            self._first = self._last = step
            self._has_runs, self._bytes = True, bytearray()
        for missed in range(self._last + 1, step):
            self._set(missed, _EMPTY)
            self._last = missed
        self._set(step, row)
        self._last = step
        self._first = max(self._first, step - MAX_POINTS + 1)
        if self._has_runs:
            self._drop_old_runs()
        elif step % MAX_POINTS == 0:
            self._convert_to_runs()

    def rows(self, last: int) -> Iterator[Values]:
        """Yield the newest rows, at most `last` of them, oldest first."""
        for row, count in self._counted(max(self._first, self._last - last + 1)):
            values = _unpacked(_ROW.unpack(row))
            for _ in range(count):
                yield values

    def newest(self) -> Values:
        """Return the values of the newest row."""
        return _unpacked(self._newest())

    def load(self) -> CurrentLoad:
        """Return the load in the newest row.

        Only a third of the row is decoded, because the loads of all models are read at every step.
        """
        row = self._newest()
        return CurrentLoad(_number(row[_RATE]), _number(row[_P99]), _sum_percent(row[-3:]))

    @property
    def last(self) -> int:
        """Number of the newest step; -1 if there is none."""
        return self._last

    def _newest(self) -> tuple[int, ...]:
        at = len(self._bytes) - _ROW.size if self._has_runs else self._last % MAX_POINTS * _ROW.size
        return _ROW.unpack_from(self._bytes, at)

    def _counted(self, begin: int) -> Iterator[tuple[bytes, int]]:
        """Yield the rows, starting at the step `begin`, each with the number of successive steps that it stands for."""
        if not self._has_runs:
            for step in range(begin, self._last + 1):
                start = step % MAX_POINTS * _ROW.size
                yield bytes(self._bytes[start : start + _ROW.size]), 1
            return
        runs = list(_RUN.iter_unpack(self._bytes))
        ends = [*(step for step, _ in runs[1:]), self._last + 1]
        for (step, row), end in zip(runs, ends, strict=True):
            yield row, max(end - max(step, begin), 0)

    def _set(self, step: int, row: bytes) -> None:
        if self._has_runs and len(self._bytes) >= MAX_RUNS * _RUN.size:
            self._convert_to_ring()
        if not self._has_runs:
            start = step % MAX_POINTS * _ROW.size
            self._bytes[start : start + _ROW.size] = row
            return
        if self._bytes and _RUN.unpack_from(self._bytes, len(self._bytes) - _RUN.size)[0] == step:
            del self._bytes[-_RUN.size :]
        if self._bytes[-_ROW.size :] != row:
            self._bytes += _RUN.pack(step, row)

    def _drop_old_runs(self) -> None:
        while len(self._bytes) > _RUN.size and _RUN.unpack_from(self._bytes, _RUN.size)[0] <= self._first:
            del self._bytes[: _RUN.size]

    def _convert_to_ring(self) -> None:
        rows, step = bytearray(_ROW.size * MAX_POINTS), self._first
        for row, count in self._counted(self._first):
            for _ in range(count):
                start = step % MAX_POINTS * _ROW.size
                rows[start : start + _ROW.size] = row
                step += 1
        self._has_runs, self._bytes = False, rows

    def _convert_to_runs(self) -> None:
        """Convert the ring buffer to runs if the rows form only a few, because the model has become idle."""
        runs, before, step = bytearray(), b"", self._first
        for row, _ in self._counted(self._first):
            if row != before:
                runs += _RUN.pack(step, row)
            before, step = row, step + 1
        if len(runs) <= MAX_RUNS // 2 * _RUN.size:
            self._has_runs, self._bytes = True, runs


@dataclass(frozen=True, slots=True)
class Series:
    """Successive points of one model's history."""

    end: float
    """Time of the newest point, in seconds since the epoch. Points are `STEP_S` apart."""
    rows: Sequence[Values]
    """Values of the points, oldest first."""

    @property
    def load(self) -> CurrentLoad:
        """Load in the newest point; all None if there is none."""
        return (
            CurrentLoad(*(self.rows[-1][FIELDS.index(name)] for name in CurrentLoad._fields)) if self.rows else NO_LOAD
        )


class ChartHistory:
    """History of all models."""

    def __init__(self) -> None:
        self._rings: dict[Name, _Ring] = {}

    def add(
        self, name: Name, at: float, counts: ReplicaCounts, numbers: ModelNumbers, quantiles: Quantiles = NO_RESPONSES
    ) -> None:
        """Store the values of a model at the time `at`. A second call within the same step replaces the first."""
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = _Ring()
        ring.put(int(at // STEP_S), _packed(counts, numbers, quantiles))

    def retain(self, names: Iterable[Name]) -> None:
        """Delete the history of all models that are not in `names`."""
        for deleted in self._rings.keys() - set(names):
            del self._rings[deleted]

    def series(self, name: Name, last: int = MAX_POINTS) -> Series:
        """Return the newest points of a model, at most `last` of them; empty if it has no history."""
        ring = self._rings.get(name)
        if ring is None or ring.last < 0:
            return Series(0.0, ())
        return Series(float(ring.last * STEP_S), tuple(ring.rows(last)))

    def newest(self, name: Name) -> Values | None:
        """Return the newest point of a model; None if it has no history."""
        ring = self._rings.get(name)
        return None if ring is None else ring.newest()

    def load(self, name: Name) -> CurrentLoad:
        """Return the load in the newest point of a model; all None if it has no history."""
        ring = self._rings.get(name)
        return NO_LOAD if ring is None else ring.load()

    def __len__(self) -> int:
        return len(self._rings)


def _packed(counts: ReplicaCounts, numbers: ModelNumbers, quantiles: Quantiles) -> bytes:
    # The fields are written out for speed, because an idle dashboard spends most of its time in this function.
    return _ROW.pack(
        _short(counts.replicas),
        _short(counts.ready),
        _short(counts.desired),
        _short(numbers.gpu, _TENTHS),
        _logarithm(numbers.rate),
        _logarithm(numbers.waiting),
        _logarithm(numbers.latency_ms),
        _logarithm(quantiles.p50),
        _logarithm(quantiles.p95),
        _logarithm(quantiles.p99),
        _logarithm(numbers.batch),
        _share(numbers.rejected, numbers.rate),
        _share(numbers.lost, numbers.rate),
        _share(numbers.failed, numbers.rate),
    )


def _unpacked(row: tuple[int, ...]) -> Values:
    replicas, ready, desired, gpu, *numbers = row
    shares = numbers[len(_NUMBERS) :]
    return (
        *(None if value == _NONE else value for value in (replicas, ready, desired)),
        None if gpu == _NONE else gpu / _TENTHS,
        *(_number(code) for code in numbers[: len(_NUMBERS)]),
        *(_percent(code) for code in shares),
        _sum_percent(shares),
    )


def _sum_percent(codes: Sequence[int]) -> float | None:
    shares = [share for share in map(_percent, codes) if share is not None]
    return min(float(f"{sum(shares):.2g}"), 100.0) if shares else None


def _short(value: float | None, scale: float = 1.0) -> int:
    """Return the value times `scale` as a 16-bit code; values above the maximum are stored as the maximum."""
    if value is None or not math.isfinite(value):
        return _NONE
    return min(max(round(value * scale), 0), _NONE - 1)


def _logarithm(value: float | None) -> int:
    """Return the code for the logarithm of a number. The code 0 stands for 0 and for values below `_MIN`."""
    if value is None or not math.isfinite(value):
        return _NONE
    return 0 if value < _MIN else min(1 + round(math.log(value / _MIN) / _STEP), _NONE - 1)


def _number(code: int) -> float | None:
    if code in (0, _NONE):
        return None if code else 0.0
    return float(f"{_MIN * math.exp((code - 1) * _STEP):.3g}")


def _share(value: float | None, total: float | None) -> int:
    """Return the code for the ratio of `rate` to `total`. A ratio above 0 gets a code that isn't decoded as 0."""
    if value is None or not total or not math.isfinite(value) or not math.isfinite(total):
        return _NO_SHARE
    if value <= 0:
        return 0
    percent = min(max(value / total * 100, _MIN_PERCENT), 100.0)
    return 1 + round(math.log(percent / _MIN_PERCENT) / _SHARE_STEP)


def _percent(code: int) -> float | None:
    if code in (0, _NO_SHARE):
        return None if code else 0.0
    return float(f"{_MIN_PERCENT * math.exp((code - 1) * _SHARE_STEP):.2g}")
