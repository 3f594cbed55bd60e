"""Daily and weekly seasons: mean arrival rates in bins of five minutes, and forecasts for the next bins.

A sample is added to the open bin. When a bin is closed, `season_models` makes the forecasts.

Bins are counted from the epoch in UTC. A day is 288 bins, even if local clocks change. An unknown bin is None, never
zero. Out of scope: spikes shorter than a bin (`recurring_spikes`), and the use of a forecast. The caller should use the
higher of the forecast and the present rate, so that a forecast never lowers the rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from halcyon.scaling.frozen import immutable
from halcyon.scaling.lazy_text import plain
from halcyon.scaling.planner.forecast.season_models import (
    AHEAD,
    BASELINES,
    DAY,
    HOUR,
    SOURCES,
    UNCHOSEN,
    USUAL,
    Choice,
    Fit,
    Source,
    chosen_models,
    fitted,
)

BIN_S = 300.0
"""Length of a bin in which the mean arrival rate is stored, in seconds. Shorter patterns are left to trends and spikes.
A week of bins (2016) fits in 40 KiB."""
MAX_BINS = 15 * DAY
"""Number of stored bins. They cover two weeks for the weekly model, and one more day on which its forecasts are
compared with the rate."""
MAX_STEP_BACK_S = 3600.0
"""Maximum number of seconds by which the clock may be set back without losing the history. If the clock is set back by
less, samples are ignored until it catches up. If it is set back further, the history starts from scratch."""
MIN_COVERED = 0.5
"""Minimum share of a bin's time that must have been observed. If less was observed, the bin's mean rate is unknown."""


@immutable(frozen=True, slots=True)
class Forecast:
    """Forecast of the highest mean rate of any bin in a time span, with the mean error of earlier forecasts."""

    rate: float
    """Forecast rate in requests per second."""
    source: Source
    error: float
    """Mean absolute error of the model's forecasts for this number of bins ahead over about the last 24 h, in requests
    per second."""
    unseasonal_error: float
    """Mean absolute error, in requests per second, of the best forecast without a season for the same bins. An example
    of such a forecast is that the rate stays the same."""

    def describe(self) -> str:
        """Return the forecast as text.

        For example: `412 req/s expected by the day (off by 12 on average; "as it is now" is off by 31)`.
        """
        return (
            f"{plain(self.rate)} req/s expected by the {'week' if self.source == 'week' else 'day'} "
            f'(off by {self.error:.2g} on average; "as it is now" is off by {self.unseasonal_error:.2g})'
        )


@immutable(frozen=True, slots=True)
class History:
    """History of the arrival rate: the closed bins, the open bin, and the models.

    `packed` and `unpacked` convert it to JSON and back.
    """

    bins: tuple[float | None, ...] = ()
    """Mean arrival rates in the closed bins, in requests per second, oldest first and without a gap. There are at most
    `MAX_BINS`."""
    open: int = -1
    """Number of the open bin, counted from the epoch; -1 before the first sample. The newest closed bin is `open` - 1."""
    requests: float = 0.0
    """Number of requests that were observed in the open bin."""
    seconds: float = 0.0
    """Number of seconds of the open bin that were observed."""
    until: float = -math.inf
    """Time of the last sample that was added."""
    fit: Fit = Fit()

    def with_sample(self, at: float, *, requests: float, seconds: float) -> History:
        """Return the history with one more sample: the `requests` that arrived in the `seconds` before `at`.

        Time that was already observed is not added again. A sample that crosses the end of a bin is split. A sample
        that covers more than a bin is ignored, because the times of its requests are unknown. Invalid values (negative,
        NaN) are ignored. If the clock was set back, samples are ignored until it has caught up; if it was set back by
        more than `MAX_STEP_BACK_S` seconds, a new history is started.
        """
        if not (0 < seconds <= BIN_S and 0 <= requests < math.inf and -math.inf < at < math.inf):
            return self
        if at <= self.until:
            return (
                self
                if at > self.until - MAX_STEP_BACK_S
                else History().with_sample(at, requests=requests, seconds=seconds)
            )
        begin = max(at - seconds, self.until)
        rate = requests / seconds
        number = int(at // BIN_S)
        edge = number * BIN_S
        history = self
        if number != self.open:
            if begin < edge and self.open == number - 1:
                before = edge - max(begin, edge - BIN_S)
                history = replace(self, requests=self.requests + rate * before, seconds=self.seconds + before)
            history = _closed(history, number)
        open_s = at - max(begin, edge)
        requests, seconds = history.requests + rate * open_s, history.seconds + open_s
        return History(history.bins, number, requests, seconds, at, history.fit)

    @classmethod
    def of(cls, means: Iterable[float | None], *, end: float) -> History:
        """Build a history from known mean rates, oldest first, for example from Prometheus.

        The last bin ends at `end`. Call the function only at the start of the process: it takes about 30 us per bin, or
        0.13 s for 15 days.
        """
        recent = list(means)[-MAX_BINS:]
        number = round(end / BIN_S)
        bins: list[float | None] = []
        fit = Fit()
        for index, mean in enumerate(recent):
            is_valid = mean is not None and 0 <= mean < math.inf
            bins.append(_shared(mean) if is_valid and mean is not None else None)
            fit = fitted(fit, bins, number - len(recent) + index)
        return cls(tuple(bins), number, 0.0, 0.0, number * BIN_S, fit)

    def packed(self) -> dict[str, Any]:
        """Return the history as JSON values, about 30 KB for 15 days."""
        fit = self.fit
        return {
            "bins": list(self.bins),
            "open": [self.open, self.requests, self.seconds, self.until if math.isfinite(self.until) else None],
            "fit": [fit.scale, fit.calm, fit.level, fit.trend, fit.spread],
            "season": [float(f"{value:.5g}") for value in fit.season],
            "usual": [list(fit.day), list(fit.week)],
            "rows": [list(row) for row in fit.rows],
            "scores": [list(score) for score in fit.scores],
        }

    @classmethod
    def unpacked(cls, packed: dict[str, Any]) -> History:
        """Restore a history from the result of `packed`; `Fit.choices` is computed again.

        Raises:
            KeyError, TypeError, ValueError: `packed` has a different format.
        """
        number, requests, seconds, until = packed["open"]
        scale, calm, level, trend, spread = packed["fit"]
        day, week = (tuple(values) for values in packed["usual"])
        season = tuple(float(value) for value in packed["season"])
        scores = tuple((float(w), float(e), float(a), float(b), float(c)) for w, e, a, b, c in packed["scores"])
        rows = tuple(tuple(row) for row in packed["rows"])
        shapes = (len(day), len(week), len(scores), *(len(row) for row in rows))
        if (
            shapes != (USUAL, USUAL, 12, *(BASELINES + 12 for _ in rows))
            or len(season) not in {0, DAY}
            or len(rows) > AHEAD
        ):
            raise ValueError(f"a packed history has parts of unexpected lengths: {shapes}")
        fit = Fit(scale, calm, level, trend, spread, season, day, week, rows, scores)
        fit = replace(fit, choices=chosen_models(rows[0], scores) if rows else fit.choices)
        bins = tuple(None if mean is None else _shared(float(mean)) for mean in packed["bins"][-MAX_BINS:])
        return cls(bins, int(number), requests, seconds, -math.inf if until is None else until, fit)


def _closed(history: History, number: int) -> History:
    """Return the history after closing the open bin and any later bins in which nothing was observed.

    `number` is the number of the next open bin.
    """
    if history.open < 0 or number - history.open > MAX_BINS:
        return History(open=number)
    bins, fit = history.bins, history.fit
    mean = history.requests / history.seconds if history.seconds >= MIN_COVERED * BIN_S else None
    bins = (*bins[-(MAX_BINS - 1) :], None if mean is None else _shared(mean))
    fit = fitted(fit, bins, history.open)
    first = max(history.open + 1, number - HOUR)
    bins = (*bins, *(None,) * (first - history.open - 1))[-MAX_BINS:]  # these bins don't change the models
    for closing in range(first, number):
        bins = (*bins[-(MAX_BINS - 1) :], None)
        fit = fitted(fit, bins, closing)
    return History(bins, number, 0.0, 0.0, history.until, fit)


def forecast(history: History, begin: float, end: float) -> Forecast | None:
    """Return the highest forecast of any bin between the times `begin` and `end`, within the next `AHEAD` bins.

    Return None if no model is used, or if the last sample is so old that all forecast bins end before `begin`.
    """
    if not begin <= end < math.inf:
        return None
    choices = history.fit.choices
    if choices is UNCHOSEN:
        return None
    newest = history.open - 1
    first = max(int(begin // BIN_S) - newest, 1)
    last = min(int(end // BIN_S) - newest, AHEAD)
    best: Choice = None
    for lead in range(first, last + 1):
        choice = choices[lead - 1]
        if choice is not None and (best is None or choice[0] > best[0]):
            best = choice
    return None if best is None else Forecast(best[0], SOURCES[best[1]], best[2], best[3])


_EQUAL: dict[float, float] = {}


def _shared(mean: float) -> float:
    """Return the mean rounded to three digits, as one shared object for equal values.

    Sharing reduces the size of 15 days of bins in memory from 138 KB to about 35 KB.
    """
    rounded = float(f"{mean:.3g}")
    return _EQUAL.setdefault(rounded, rounded)
