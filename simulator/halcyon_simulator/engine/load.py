"""Arrival times: Poisson and bursty processes for given rates, and transformations of given times.

The transformations are shifted copies, thinning and merging. All randomness comes from the generator that the caller
passes. Out of scope: the load of a scenario (`scenarios`), and recorded loads (`traces`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from halcyon_simulator.engine.case import Times

_MORE = 8
"""Number of additional arrival gaps that are drawn, in standard deviations above the mean. If the gaps don't cover the
load, more gaps are drawn."""


@dataclass(frozen=True)
class Profile:
    """Request rate over time, as consecutive linear pieces from time 0."""

    pieces: tuple[tuple[float, float, float], ...]
    """Pieces as (duration in s, rate at the start, rate at the end), with rates in requests per second."""

    def __post_init__(self) -> None:
        for number, (duration_s, begin, end) in enumerate(self.pieces):
            if not (duration_s > 0 and begin >= 0 and end >= 0 and math.isfinite(duration_s + begin + end)):
                raise ValueError(
                    f"piece {number} of a load is {(duration_s, begin, end)}: its duration has to be above 0 and its two rates "
                    "0 or more; for example (900, 20, 400)"
                )

    @classmethod
    def steps(cls, *pieces: tuple[float, float]) -> Self:
        """Return a profile of constant pieces, given as pairs of (duration in s, requests per second)."""
        return cls(tuple((duration_s, rate, rate) for duration_s, rate in pieces))

    @property
    def duration_s(self) -> float:
        """Total duration of the profile in seconds."""
        return float(sum(duration_s for duration_s, _, _ in self.pieces))

    @property
    def requests(self) -> float:
        """Expected number of requests in the whole profile."""
        return sum(duration_s * (begin + end) / 2 for duration_s, begin, end in self.pieces)

    def scaled(self, factor: float) -> Profile:
        """Return the same profile with every rate multiplied by `factor`."""
        return Profile(tuple((duration_s, begin * factor, end * factor) for duration_s, begin, end in self.pieces))

    def times(self, expected: NDArray[np.float64]) -> Times:
        """Return the times at which the expected number of requests reaches each value in `expected`.

        The values are ascending and below `requests`. This change of time turns a process with rate 1 into one with
        this profile.
        """
        table = np.array(self.pieces, dtype=np.float64)
        durations, begins, ends = table[:, 0], table[:, 1], table[:, 2]
        starts = np.concatenate(([0.0], np.cumsum(durations)[:-1]))
        counts = np.concatenate(([0.0], np.cumsum(durations * (begins + ends) / 2)))
        if np.array_equal(begins, ends):
            # A piece without requests gives two knots with the same value. No draw falls between them.
            return np.asarray(
                np.interp(expected, counts, np.append(starts, starts[-1] + durations[-1])), dtype=np.float64
            )
        piece = np.minimum(np.searchsorted(counts, expected, side="right") - 1, len(durations) - 1)
        within = expected - counts[piece]
        slope = (ends - begins) / durations
        # Solve begin x u + slope x u^2 / 2 = within for u, in a form that doesn't divide by the slope, which may be 0.
        root = np.sqrt(np.maximum(begins[piece] ** 2 + 2 * slope[piece] * within, 0.0))
        divisor = np.maximum(begins[piece] + root, np.finfo(np.float64).tiny)
        return np.asarray(starts[piece] + np.minimum(2 * within / divisor, durations[piece]), dtype=np.float64)


def arrivals(profile: Profile, *, rng: np.random.Generator, cv: float = 1.0) -> Times:
    """Return the arrival times for a profile. If `cv` is 1, they are a Poisson process with exactly its rate.

    For other values of `cv`, they are a renewal process with Gamma gaps of this coefficient of variation, stretched by
    the rate. It is bursty if `cv` is above 1, and regular if it is below. Its mean rate always equals that of the
    profile.
    """
    return profile.times(renewal(profile.requests, rng=rng, cv=cv))


def renewal(total: float, *, rng: np.random.Generator, cv: float = 1.0) -> NDArray[np.float64]:
    """Return a stationary renewal process on [0, total), with Gamma gaps of mean 1."""
    if not cv > 0:
        raise ValueError(
            f"the coefficient of variation of a load is {cv}: it has to be above 0; 1 is Poisson, 3 is bursty"
        )
    shape = 1 / cv**2
    # The process started long ago, so time 0 falls into a gap with a probability proportional to the gap's length.
    first = rng.random() * rng.gamma(shape + 1, 1 / shape)
    parts = [np.array([first])]
    reached = first
    while reached < total:
        remaining = total - reached
        number = int(remaining + _MORE * cv * math.sqrt(remaining)) + 16
        gaps = rng.standard_exponential(number) if cv == 1 else rng.gamma(shape, 1 / shape, number)
        np.cumsum(gaps, out=gaps)
        gaps += reached
        parts.append(gaps)
        reached = float(gaps[-1])
    points = np.concatenate(parts)
    return points[: int(np.searchsorted(points, total))]


def superposed(times: Times, *, copies: int, spread_s: float, rng: np.random.Generator) -> Times:
    """Return the sum of several copies of a load, all but the first shifted by up to `spread_s` seconds.

    Arrivals that a shift moves beyond the last time of `times` are moved to the beginning, so that the sum has no tail.
    """
    if copies < 1:
        raise ValueError(f"a load superposed {copies} times: it has to be 1 or more; 1 is the load itself")
    if copies == 1 or len(times) == 0:
        return times
    span = float(times[-1]) + 1e-9
    shifts = np.concatenate(([0.0], rng.random(copies - 1) * min(spread_s, span)))
    return np.sort(np.mod(times[None, :] + shifts[:, None], span), axis=None)


def thinned(times: Times, *, share: float, rng: np.random.Generator) -> Times:
    """Return a load in which each request is kept with the probability `share`."""
    if not 0 <= share <= 1:
        raise ValueError(f"a load thinned to a share of {share}: it has to be between 0 and 1, for example 0.2")
    return times[rng.random(len(times)) < share]


def merged(loads: Sequence[Times]) -> Times:
    """Return the union of several loads, in chronological order."""
    return np.sort(np.concatenate([np.zeros(0), *loads]))
