"""Daily and weekly seasons: mean arrival rates in bins of five minutes, and forecasts for the next bins.

There are three models:

    day             the usual rate at this time of day
    week            the usual rate at this time of the week
    holt-winters    additive Holt-Winters with a season of one day

The forecasts of each model are continuously compared with three forecasts that have no season: the last bin, a smoothed
mean, and the median of the last hour. This is done separately for each number of bins ahead (the lead). A model is used
only if its error over about a day is below that of the best of the three. So a load without a season has no forecast.
All of this is computed once per closed bin; a sample is only added to the open bin.

Bins are counted from the epoch in UTC. A day is 288 bins, even if local clocks change. An unknown bin is None, never
zero. Out of scope: spikes shorter than a bin (`recurring_spikes`), and the use of a forecast. The caller should use the
higher of the forecast and the present rate: a forecast raises the rate and never lowers it.

The text at each constant gives the reason for its value. Most values are conventional. `NEAR`, `HOUR`, `MAX_LEVEL` and
the third forecast without a season were chosen on two production traces and a dozen synthetic loads. Results on those
loads therefore do not prove them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from halcyon.scaling.frozen import immutable

Source = Literal["day", "week", "holt-winters"]

BIN_S = 300.0
"""Length of a bin in seconds. Shorter patterns are left to trends and spikes. A week of bins (2016) fits in 40 KiB."""
DAY = 288
"""Number of bins per day."""
WEEK = 7 * DAY
"""Number of bins per week."""
MAX_BINS = 15 * DAY
"""Number of bins kept: two weeks for the weekly model, and one day on which it is compared."""
MAX_STEP_BACK_S = 3600.0
"""Maximum step of the clock backwards, in seconds, after which the history is kept. Samples are then ignored until the
clock catches up. After a larger step, the history starts from scratch."""
AHEAD = 4
"""Number of bins forecast. They cover at least the next 15 minutes; pods seldom take longer to start."""
MIN_COVERED = 0.5
"""Minimum share of a bin that must have been observed; otherwise the bin's mean is unknown."""
DAYS = 7
"""Number of days in the median of the daily model: one of each weekday, so that one or two unusual days never determine
it."""
WEEKS = 2
"""Number of weeks in the median of the weekly model: all that are stored."""
NEAR = 5
"""Number of bins (25 min) in which the present rate is compared with the usual one. A longer time lags behind: real
load changes irregularly, and its rate an hour ago adds little. (In a first test on two traces, 20 or 30 min did best
among 10, 20, 30 and 60.) The median of the five ratios is used, so that a burst does not count as a new level."""
HOUR = 12
"""Number of bins in the hour whose median is the third forecast without a season. If more bins than this were
unobserved, the models are updated only for the newest `HOUR` bins."""
TRUST = 0.1
"""Share of the mean rate that is added to the present and to the usual rate before they are compared. It keeps a few
requests at night from counting as a new level."""
MAX_LEVEL = 4.0
"""Maximum factor by which a forecast is scaled: the ratio of the present rate to the usual one. If the ratio is higher,
planning with the present rate is sufficient. There is no minimum: in an outage or on a holiday, a season scaled to 5 %
raises nothing."""
ALPHA = 0.2
"""Smoothing factor for the Holt-Winters level, which averages over five bins. It is also used for the smoothed mean
that a model's error is compared with."""
BETA = 0.02
"""Smoothing factor for the Holt-Winters trend, which averages over fifty bins."""
PHI = 0.8
"""Damping factor of the Holt-Winters trend per bin: the trend fades within a few bins. The planner detects short trends
itself, with a finer resolution."""
GAMMA = 0.25
"""Smoothing factor for the Holt-Winters season, which averages over four days."""
CLIP = 4.0
"""Maximum size of an innovation (forecast error), as a multiple of the mean absolute innovation. Larger ones are
reduced to it, so that a burst is not learnt as part of the season."""
FADE = math.exp(-1 / DAY)
"""Factor by which the weight of older errors in the scores falls with each bin. After one day it has fallen to 1/e. So
the scores cover about the last 24 h, and single errors need not be stored."""
JUDGED = (1 - math.exp(-1)) * (DAY - 1)
"""Minimum weight of a model's score for the model to be used. It is reached after one whole day, so every hour of a day
is included."""
MARGIN = 0.9
"""Maximum mean absolute error of a model that is used, as a share of the error of the best forecast without a season. A
difference of 10 % rules out chance: in 21 synthetic runs of ten days without a season, no model was used."""

SOURCES: tuple[Source, ...] = ("day", "week", "holt-winters")

Row = tuple[float | None, ...]
"""Forecasts made at the end of one bin: `BASELINES` forecasts without a season, then `AHEAD` forecasts of each model.
"""
BASELINES = 3
"""Number of forecasts without a season: the last bin, the smoothed mean, and the median of the last hour. The median is
included for bursty loads, where it has a smaller error than any mean."""
Score = tuple[float, float, float, float, float]
"""Sums over bins, with less weight for older ones: the weights, the absolute errors of the model, and those of each
forecast without a season."""
Choice = tuple[float, int, float, float] | None
"""Model used for one lead: forecast rate, index in `SOURCES`, its mean absolute error, and that of the best forecast
without a season. None if no model is used."""

_UNCHOSEN: tuple[Choice, ...] = (None,) * AHEAD
"""Value of `Fit.choices` while no model is used, for example during the first day."""
_UNSCORED: Score = (0.0, 0.0, 0.0, 0.0, 0.0)
"""Score of a model before any of its forecasts has been compared with a bin."""
_USUAL = NEAR + AHEAD
"""Number of bins for which usual rates are kept: the last `NEAR` and the next `AHEAD`."""


@immutable(frozen=True, slots=True)
class Forecast:
    """Forecast of the highest mean rate of any bin in a time span, with the error of such forecasts."""

    rate: float
    """Forecast rate in requests per second."""
    source: Source
    error: float
    """Mean absolute error of this model at this lead over about the last 24 h, in requests per second."""
    unseasonal_error: float
    """Mean absolute error of the best forecast without a season ("as it is now"), for the same bins and lead."""

    def describe(self) -> str:
        """Return the forecast as text.

        For example: `412 req/s expected by the day (off by 12 on average; "as it is now" is off by 31)`.
        """
        return (
            f"{self.rate:.4g} req/s expected by the {'week' if self.source == 'week' else 'day'} "
            f'(off by {self.error:.2g} on average; "as it is now" is off by {self.unseasonal_error:.2g})'
        )


@immutable(frozen=True, slots=True)
class Fit:
    """State of the three models and their scores, updated with each closed bin: only numbers and tuples of numbers."""

    scale: float | None = None
    """Mean rate, averaged with a time constant of one day, in requests per second."""
    calm: float | None = None
    """Smoothed mean rate, with the factor `ALPHA`, in requests per second."""
    level: float = 0.0
    trend: float = 0.0
    spread: float = 0.0
    """Mean absolute innovation (forecast error) of Holt-Winters, in requests per second."""
    season: tuple[float, ...] = ()
    """Difference from the level for each bin of the day, in requests per second; empty until one day has been observed.
    """
    day: tuple[float | None, ...] = (None,) * _USUAL
    """Usual rates of the daily model, for the last `NEAR` bins and the next `AHEAD`; `week` is the same for the weekly
    model."""
    week: tuple[float | None, ...] = (None,) * _USUAL
    rows: tuple[Row, ...] = ()
    """Forecasts made at the end of the last `AHEAD` bins, newest first."""
    scores: tuple[Score, ...] = (_UNSCORED,) * (len(SOURCES) * AHEAD)
    """Scores of the models, ordered by source and then by lead."""
    choices: tuple[Choice, ...] = _UNCHOSEN
    """Model used for each lead; None for a lead at which no model is good enough."""


@immutable(frozen=True, slots=True)
class History:
    """History of the arrival rate: the closed bins, the open bin, and the models.

    `packed` and `unpacked` convert it to JSON and back.
    """

    bins: tuple[float | None, ...] = ()
    """Mean rates of the closed bins in requests per second, oldest first and without a gap; at most `MAX_BINS`."""
    open: int = -1
    """Number of the open bin, counted from the epoch; -1 before the first sample. The newest closed bin is `open` - 1."""
    requests: float = 0.0
    """Number of requests observed in the open bin."""
    seconds: float = 0.0
    """Number of seconds of the open bin that were observed."""
    until: float = -math.inf
    """Time of the last sample."""
    fit: Fit = Fit()

    def with_sample(self, at: float, *, requests: float, seconds: float) -> History:
        """Return the history with one more sample: the `requests` that arrived in the `seconds` before `at`.

        Time that was already observed is left out, and a sample that crosses the end of a bin is split. A sample longer
        than a bin is ignored, because the times of its requests are unknown. Invalid values (negative, NaN) are ignored
        too, and so are samples after a small step of the clock backwards. A step of more than `MAX_STEP_BACK_S` seconds
        starts a new history.
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
        seen = at - max(begin, edge)
        requests, seconds = history.requests + rate * seen, history.seconds + seen
        return History(history.bins, number, requests, seconds, at, history.fit)

    @classmethod
    def of(cls, means: Iterable[float | None], *, end: float) -> History:
        """Build a history from known mean rates, oldest first, for example from Prometheus.

        The last bin ends at `end`. This takes about 30 us per bin, 0.13 s for 15 days, so do it only at the start of
        the process.
        """
        kept = list(means)[-MAX_BINS:]
        number = round(end / BIN_S)
        bins: list[float | None] = []
        fit = Fit()
        for index, mean in enumerate(kept):
            known = mean is not None and 0 <= mean < math.inf
            bins.append(_shared(mean) if known and mean is not None else None)
            fit = _fitted(fit, bins, number - len(kept) + index)
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
            KeyError, TypeError, ValueError: `packed` has another form.
        """
        number, requests, seconds, until = packed["open"]
        scale, calm, level, trend, spread = packed["fit"]
        day, week = (tuple(values) for values in packed["usual"])
        season = tuple(float(value) for value in packed["season"])
        scores = tuple((float(w), float(e), float(a), float(b), float(c)) for w, e, a, b, c in packed["scores"])
        rows = tuple(tuple(row) for row in packed["rows"])
        shapes = (len(day), len(week), len(scores), *(len(row) for row in rows))
        if (
            shapes != (_USUAL, _USUAL, 12, *(BASELINES + 12 for _ in rows))
            or len(season) not in {0, DAY}
            or len(rows) > AHEAD
        ):
            raise ValueError(f"a packed history has parts of unexpected lengths: {shapes}")
        fit = Fit(scale, calm, level, trend, spread, season, day, week, rows, scores)
        fit = replace(fit, choices=_choices(rows[0], scores) if rows else fit.choices)
        bins = tuple(None if mean is None else _shared(float(mean)) for mean in packed["bins"][-MAX_BINS:])
        return cls(bins, int(number), requests, seconds, -math.inf if until is None else until, fit)


def _closed(history: History, number: int) -> History:
    """Return the history after closing the open bin and any unobserved bins after it. `number` is the next open bin."""
    if history.open < 0 or number - history.open > MAX_BINS:
        return History(open=number)
    bins, fit = history.bins, history.fit
    mean = history.requests / history.seconds if history.seconds >= MIN_COVERED * BIN_S else None
    bins = (*bins[-(MAX_BINS - 1) :], None if mean is None else _shared(mean))
    fit = _fitted(fit, bins, history.open)
    first = max(history.open + 1, number - HOUR)
    bins = (*bins, *(None,) * (first - history.open - 1))[-MAX_BINS:]  # these bins don't change the models
    for closing in range(first, number):
        bins = (*bins[-(MAX_BINS - 1) :], None)
        fit = _fitted(fit, bins, closing)
    return History(bins, number, 0.0, 0.0, history.until, fit)


def forecast(history: History, begin: float, end: float) -> Forecast | None:
    """Return the highest forecast of any bin that overlaps with [begin, end], within the next `AHEAD` bins.

    Return None if no model is used, or if the last sample is so old that all of these bins are before `begin`.
    """
    if not begin <= end < math.inf:
        return None
    choices = history.fit.choices
    if choices is _UNCHOSEN:
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


def _fitted(fit: Fit, bins: Sequence[float | None], number: int) -> Fit:
    """Return the models updated with bin `number`, which is the last of `bins` and was just closed."""
    mean = bins[-1]
    scores = fit.scores if mean is None else _scored(fit, mean)
    scale = _smooth(fit.scale, mean, 1 / min(len(bins), DAY))
    calm = _smooth(fit.calm, mean, ALPHA)
    level, trend, spread, season = _holt_winters(fit, bins, number)
    day = (*fit.day[1:], _usual(bins, DAY, DAYS))
    week = (*fit.week[1:], _usual(bins, WEEK, WEEKS))
    ahead = (
        *_levelled(day, bins, scale),
        *_levelled(week, bins, scale),
        *_continued(level, trend, season, number),
    )
    hour = [known for known in bins[-HOUR:] if known is not None]
    row = (mean, calm, _median(hour), *ahead)
    rows = (row, *fit.rows[: AHEAD - 1])
    return Fit(scale, calm, level, trend, spread, season, day, week, rows, scores, _choices(row, scores))


def _scored(fit: Fit, mean: float) -> tuple[Score, ...]:
    """Return the scores updated with the forecast errors for the bin that was just closed.

    `mean` is the mean rate of this bin.
    """
    scores = list(fit.scores)
    for lead, row in enumerate(fit.rows):
        last, calm, hour = row[0], row[1], row[2]
        if last is None or calm is None or hour is None:
            continue
        by_last, by_calm, by_hour = abs(last - mean), abs(calm - mean), abs(hour - mean)
        for index in range(lead, len(scores), AHEAD):
            expected = row[BASELINES + index]
            if expected is not None:
                weight, error, last_error, calm_error, hour_error = scores[index]
                scores[index] = (
                    FADE * weight + 1,
                    FADE * error + abs(expected - mean),
                    FADE * last_error + by_last,
                    FADE * calm_error + by_calm,
                    FADE * hour_error + by_hour,
                )
    return tuple(scores)


def _choices(row: Row, scores: Sequence[Score]) -> tuple[Choice, ...]:
    """Return the model to use for each lead: the one with the smallest error.

    Its error must also be below `MARGIN` times that of the best forecast without a season.
    """
    chosen: list[Choice] = []
    for lead in range(AHEAD):
        best: Choice = None
        least = MARGIN
        for source in range(len(SOURCES)):
            expected = row[BASELINES + source * AHEAD + lead]
            weight, error, *rivals = scores[source * AHEAD + lead]
            rival = min(rivals)
            if expected is not None and weight >= JUDGED and error < least * rival:
                least = error / rival
                best = (expected, source, error / weight, rival / weight)
        chosen.append(best)
    return tuple(chosen) if any(chosen) else _UNCHOSEN


def _usual(bins: Sequence[float | None], lag: int, times: int) -> float | None:
    """Return the usual rate of the bin that is `AHEAD` bins after the last of `bins`; None if unknown.

    It is the median of the known rates 1 to `times` periods earlier (a period is `lag` bins), each with its two
    neighbouring bins. A median is used because a burst on one day is not expected on the next, but would change a
    maximum or a mean.
    """
    rates: list[float] = []
    for back in range(1, times + 1):
        at = len(bins) - 1 + AHEAD - back * lag
        if at < 1:
            break
        rates += [mean for mean in bins[at - 1 : at + 2] if mean is not None]
    return _median(rates)


def _levelled(usual: Sequence[float | None], bins: Sequence[float | None], scale: float | None) -> Row:
    """Return the usual rates of the next bins, multiplied by the ratio of the present rate to the usual one."""
    if scale is None:
        return (None,) * AHEAD
    trust = TRUST * scale
    ratios = [
        (mean + trust) / (was_usual + trust) if was_usual + trust > 0 else 1.0
        for mean, was_usual in zip(bins[-NEAR:], usual[:NEAR][-len(bins) :], strict=True)
        if mean is not None and was_usual is not None
    ]
    ratio = _median(ratios)
    if ratio is None:
        return (None,) * AHEAD
    ratio = min(ratio, MAX_LEVEL)
    return tuple(None if value is None else value * ratio for value in usual[NEAR:])


def _holt_winters(fit: Fit, bins: Sequence[float | None], number: int) -> tuple[float, float, float, tuple[float, ...]]:
    """Return the Holt-Winters level, trend, mean absolute innovation and season, updated with the last of `bins`.

    `number` is the number of that bin.
    """
    mean = bins[-1]
    if not fit.season:
        return _begun(bins, number)
    level, trend, spread, season = fit.level, fit.trend, fit.spread, fit.season
    before = level + PHI * trend
    if mean is None:
        return before, PHI * trend, spread, season
    slot = number % DAY
    innovation = mean - before - season[slot]
    most = CLIP * spread
    clipped = min(max(innovation, -most), most)
    spread += 0.02 * (min(abs(innovation), 4 * most) - spread)
    changed = season[slot] + GAMMA * (1 - ALPHA) * clipped
    season = (*season[:slot], changed, *season[slot + 1 :])
    return before + ALPHA * clipped, PHI * trend + ALPHA * BETA * clipped, spread, season


def _begun(bins: Sequence[float | None], number: int) -> tuple[float, float, float, tuple[float, ...]]:
    """Return the initial Holt-Winters values once at least 80 % of the bins of the last day are known."""
    day = bins[-DAY:]
    known = [mean for mean in day if mean is not None]
    if len(known) < 0.8 * DAY:
        return 0.0, 0.0, 0.0, ()
    middle = sum(known) / len(known)
    by_slot = [0.0] * DAY
    for back, mean in enumerate(reversed(day)):
        by_slot[(number - back) % DAY] = 0.0 if mean is None else mean - middle
    steps = [abs(b - a) for a, b in pairwise(known)]
    return middle, 0.0, sum(steps) / len(steps), tuple(by_slot)


def _continued(level: float, trend: float, season: Sequence[float], number: int) -> Row:
    if not season:
        return (None,) * AHEAD
    ahead: list[float] = []
    slope, damped = 0.0, trend
    for lead in range(1, AHEAD + 1):
        damped *= PHI
        slope += damped
        ahead.append(max(level + slope + season[(number + lead) % DAY], 0.0))
    return tuple(ahead)


def _smooth(before: float | None, mean: float | None, share: float) -> float | None:
    if mean is None:
        return before
    return mean if before is None else before + share * (mean - before)


def _median(values: list[float]) -> float | None:
    if not values:
        return None
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


_EQUAL: dict[float, float] = {}


def _shared(mean: float) -> float:
    """Return the mean rounded to three digits, as one shared object for equal values.

    Sharing reduces the size of 15 days of bins from 138 KB to about 35 KB.
    """
    rounded = float(f"{mean:.3g}")
    return _EQUAL.setdefault(rounded, rounded)
