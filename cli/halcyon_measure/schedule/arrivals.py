"""Arrival times of scenarios with a schedule. Pure; the seed determines all random values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from halcyon_measure.schedule.scenario import Scenario

Times = npt.NDArray[np.float64]
_CHUNK = 16_384


def chunks(scenario: Scenario) -> Iterator[Times]:
    """Yield the due times in seconds since the start of the schedule, in ascending order, as arrays of bounded size.

    They end before `duration_s`, or after `requests` requests. A trace ends with its last arrival, and `offline` with
    its last request. `blocking` has no schedule, so nothing is yielded.
    """
    left = scenario.requests
    for times in _endless(scenario):
        due = times if scenario.kind in {"offline", "trace"} else times[times < scenario.duration_s]
        if left is not None:
            due = due[:left]
            left -= len(due)
        if len(due):
            yield due
        if len(due) < len(times) or left == 0:
            return


def share(scenario: Scenario, *, index: int, workers: int) -> Iterator[float]:
    """Yield the due times of worker `index` of `workers` workers: every `workers`-th arrival of the common schedule."""
    first = index
    for due in chunks(scenario):
        own_due = due[first::workers]
        yield from own_due.tolist()
        first = (first - len(due)) % workers


def _endless(scenario: Scenario) -> Iterator[Times]:
    """Yield the due times without checking the end of the scenario."""
    rng = np.random.default_rng(scenario.seed)
    if scenario.kind == "trace":
        times = np.asarray(scenario.trace, dtype=np.float64)
        yield from (times[start : start + _CHUNK] for start in range(0, len(times), _CHUNK))
    elif scenario.kind == "offline":
        left = scenario.requests if scenario.requests is not None else _CHUNK
        while left > 0:
            yield np.zeros(min(left, _CHUNK))
            left -= _CHUNK
    elif scenario.kind == "ramp":
        yield from _ramp(scenario, rng)
    elif scenario.kind == "burst" and scenario.on_s is not None:
        yield from _phases(scenario, rng)
    elif scenario.kind in {"sustained", "burst"}:
        # The gaps between Gamma arrivals have the shape 1 / cv^2; with cv = 1 they are those of a Poisson process.
        shape = 1.0 if scenario.cv is None else scenario.cv**-2
        mean = 1.0 / cast(float, scenario.rate_rps)
        now = 0.0
        while True:
            times = now + np.cumsum(rng.gamma(shape, mean / shape, _CHUNK))
            now = float(times[-1])
            yield times


def _ramp(scenario: Scenario, rng: np.random.Generator) -> Iterator[Times]:
    """Yield arrivals of a Poisson process whose rate changes linearly, by the inverse of the cumulative rate."""
    first, last = cast(float, scenario.rate_rps), cast(float, scenario.to_rps)
    slope = (last - first) / scenario.duration_s
    # The cumulative rate is first * t + slope * t^2 / 2. With a falling rate it has a maximum at the end.
    total = (first + last) / 2 * scenario.duration_s
    cumulative = 0.0
    while cumulative < total:
        units = cumulative + np.cumsum(rng.exponential(1.0, _CHUNK))
        cumulative = float(units[-1])
        units = units[units < total]
        yield (
            units / first
            if abs(slope) < 1e-12
            else 2 * units / (first + np.sqrt(np.maximum(first**2 + 2 * slope * units, 0.0)))
        )


def _phases(scenario: Scenario, rng: np.random.Generator) -> Iterator[Times]:
    """Yield arrivals of a Poisson process for `on_s` seconds, none for `off_s` seconds, and repeat."""
    on_s, off_s = cast(float, scenario.on_s), cast(float, scenario.off_s)
    busy = 0.0
    while True:
        times = busy + np.cumsum(rng.exponential(1.0 / cast(float, scenario.rate_rps), _CHUNK))
        busy = float(times[-1])
        yield times + np.floor(times / on_s) * off_s
