"""Daily and weekly seasons: the mean arrival rate by bins of five minutes, and the forecast of the next ones.

There are three models: the usual rate at this time of day, the usual rate at this time of the week, and Holt-Winters (additive,
season of one day). Each is scored continuously, at each lead, against three forecasts without a season: the last bin, a smooth
mean and the median of the last hour. A model that does not beat the best of them over about a day is not used, so a load
without a season has no forecast. All of this happens once per closed bin; a tick only adds to the open bin.

Bins are counted from the epoch in UTC: a day is 288 bins, whatever local clocks do. An unknown bin is None, never zero. Out of
scope: spikes shorter than a bin (`recurring_spikes`), and the use of a forecast. A forecast is meant to be combined with the
present rate by a maximum: it raises the rate and never lowers it.

The trade-off of each constant is beside it. Most are conventional values. `NEAR`, `HOUR`, `MAX_LEVEL` and the third rival were
set after examining two production traces and a dozen synthetic loads, so figures on those do not prove them.
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
"""Length of a bin. Shorter patterns are left to trends and spikes, and a week of bins (2016) fits in 40 KiB."""
DAY = 288
"""Bins per day."""
WEEK = 7 * DAY
"""Bins per week."""
MAX_BINS = 15 * DAY
"""Bins kept: two weeks for the weekly model, and a day to score it on."""
MAX_STEP_BACK_S = 3600.0
"""Clock step backwards beyond which the history starts from scratch. After a smaller step, samples are ignored until the clock
catches up."""
AHEAD = 4
"""Number of bins forecast ahead: 15 minutes from any time in the open bin. Start times are seldom longer."""
MIN_COVERED = 0.5
"""Share of a bin that must have been observed for its mean to be known."""
DAYS = 7
"""Days in the median of the daily model: one of each weekday, so that one or two odd days never decide."""
WEEKS = 2
"""Weeks in the median of the weekly model (all that are kept)."""
NEAR = 5
"""Bins (25 min) over which the present level is compared with the usual one. A longer span lags behind: real load wanders, and
its level an hour ago adds little. (In a first test on two traces, 20 or 30 min did best among 10, 20, 30 and 60.) The median of
the five ratios is used, because a burst is no new level."""
HOUR = 12
"""Bins in the hour whose median is the third rival; a longer gap isn't filled."""
TRUST = 0.1
"""Share of the mean rate that is added to both sides of that comparison: at night a few requests prove no new level."""
MAX_LEVEL = 4.0
"""Maximum factor on the usual rate: beyond it, the present rate is sufficient. There is no minimum: a season scaled to 5 % (an
outage, a holiday) raises nothing."""
ALPHA = 0.2
"""Holt-Winters, level: a memory of five bins. Also used for the smooth mean that a model has to beat."""
BETA = 0.02
"""Holt-Winters, trend: a memory of fifty bins."""
PHI = 0.8
"""Damping of the trend, within a few bins. The planner handles short trends itself, at a finer resolution."""
GAMMA = 0.25
"""Holt-Winters, season: a memory of four days."""
CLIP = 4.0
"""Limit of innovations (forecast errors), as a multiple of their mean absolute value. Larger ones are cut to it, so that a
burst is not learnt as part of the season."""
FADE = math.exp(-1 / DAY)
"""Factor by which scores fade per bin: by a factor of e in a day. This covers about the last 24 h without keeping 24 h of
errors."""
JUDGED = (1 - math.exp(-1)) * (DAY - 1)
"""Weight of scores after one whole day: every hour of a day is judged before a model is used."""
MARGIN = 0.9
"""Share of the best non-seasonal forecast's error that a model's mean absolute error must stay below: 10 % excludes mere luck (no
model was used in 21 synthetic runs of ten days without a season)."""

SOURCES: tuple[Source, ...] = ("day", "week", "holt-winters")

Row = tuple[float | None, ...]
"""Forecasts made at the end of one bin: the `BASELINES` non-seasonal values, then `AHEAD` values for each model."""
BASELINES = 3
"""Number of non-seasonal forecasts: last bin, smooth mean, median of the last hour. The last is for bursts, where any median
beats a mean."""
Score = tuple[float, float, float, float, float]
"""Faded sums: weight, |error| of the model, of each rival."""
Choice = tuple[float, int, float, float] | None
"""Rate, index of the source, its mean absolute error, that of the best non-seasonal forecast."""

_UNCHOSEN: tuple[Choice, ...] = (None,) * AHEAD
"""Choices until some model has learnt a season, and during the first day."""
_UNSCORED: Score = (0.0, 0.0, 0.0, 0.0, 0.0)
"""Score of a model that was never judged."""
_USUAL = NEAR + AHEAD
"""Bins for which the usual rate is kept: those that determine the level, and those ahead."""


@immutable(frozen=True, slots=True)
class Forecast:
    """Highest expected mean rate of a bin, with the accuracy of such forecasts."""

    rate: float
    """Requests per second."""
    source: Source
    error: float
    """Mean absolute error of this source at this lead over about the last 24 h, requests per second."""
    unseasonal_error: float
    """The same error of the best forecast without a season ("it stays as it is now")."""

    def describe(self) -> str:
        """Return for example `412 req/s expected by the day (off by 12 on average; "as it is now" is off by 31)`."""
        return (
            f"{self.rate:.4g} req/s expected by the {'week' if self.source == 'week' else 'day'} "
            f'(off by {self.error:.2g} on average; "as it is now" is off by {self.unseasonal_error:.2g})'
        )


@immutable(frozen=True, slots=True)
class Fit:
    """State of the models, updated with each closed bin. Numbers and tuples of numbers only."""

    scale: float | None = None
    """Mean rate with a time constant of a day."""
    calm: float | None = None
    """Smooth mean, with factor `ALPHA`."""
    level: float = 0.0
    trend: float = 0.0
    spread: float = 0.0
    """Mean absolute innovation of Holt-Winters."""
    season: tuple[float, ...] = ()
    """Offset from the level by bin of the day; empty until a day was observed."""
    day: tuple[float | None, ...] = (None,) * _USUAL
    """Usual rates by the daily model: the last `NEAR` bins and the next `AHEAD`."""
    week: tuple[float | None, ...] = (None,) * _USUAL
    rows: tuple[Row, ...] = ()
    """Newest first."""
    scores: tuple[Score, ...] = (_UNSCORED,) * (len(SOURCES) * AHEAD)
    """By source, then by lead."""
    choices: tuple[Choice, ...] = _UNCHOSEN
    """By lead: the best model that is good enough to be used."""


@immutable(frozen=True, slots=True)
class History:
    """Closed bins, the open one, and the models. `packed` and `unpacked` convert it to JSON and back."""

    bins: tuple[float | None, ...] = ()
    """Mean rates of closed bins, oldest first, without a gap; at most `MAX_BINS`."""
    open: int = -1
    """Number of the open bin, counted from the epoch; -1 before the first sample. The newest closed bin is `open` - 1."""
    requests: float = 0.0
    """Requests that arrived in the open bin, as far as observed."""
    seconds: float = 0.0
    """Seconds of the open bin that were observed."""
    until: float = -math.inf
    """End of the observed time."""
    fit: Fit = Fit()

    def with_sample(self, at: float, *, requests: float, seconds: float) -> History:
        """Return the history with the `requests` that arrived in the `seconds` before `at`.

        Time that was already observed is left out, and a sample that crosses the end of a bin is split. A sample longer than a
        bin is not used, because the times of its requests are unknown. Invalid values (negative, NaN) change nothing, nor does
        a small step back of the clock. A step back by more than `MAX_STEP_BACK_S` starts a new history.
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
        """Build a history of known means, oldest first, whose last bin ends at `end` (for example from Prometheus).

        Takes about 30 us per bin, 0.13 s for 15 days: use it at start, not on a tick.
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
        """Return JSON values; about 30 KB for 15 days."""
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
        """Restore what `packed` made; choices are recomputed. KeyError, TypeError or ValueError if it is something else."""
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
    """Close the open bin, and the unobserved bins after it, up to `number`."""
    if history.open < 0 or number - history.open > MAX_BINS:
        return History(open=number)
    bins, fit = history.bins, history.fit
    mean = history.requests / history.seconds if history.seconds >= MIN_COVERED * BIN_S else None
    bins = (*bins[-(MAX_BINS - 1) :], None if mean is None else _shared(mean))
    fit = _fitted(fit, bins, history.open)
    first = max(history.open + 1, number - HOUR)
    bins = (*bins, *(None,) * (first - history.open - 1))[-MAX_BINS:]  # the models keep nothing of these anyway
    for closing in range(first, number):
        bins = (*bins[-(MAX_BINS - 1) :], None)
        fit = _fitted(fit, bins, closing)
    return History(bins, number, 0.0, 0.0, history.until, fit)


def forecast(history: History, begin: float, end: float) -> Forecast | None:
    """Return the highest expected mean rate of any bin that [begin, end] touches, within the next `AHEAD` bins.

    None if no model is good enough, or if the last sample is so old that the window lies beyond.
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
    """Return the models after bin `number` was closed as the last of `bins`."""
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
    """Return the scores with the errors of the forecasts for the bin that has just closed."""
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
    """Return by lead the model with the smallest error, of those that beat the non-seasonal forecasts by the margin."""
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
    """Return the median of the rates `lag`, 2 `lag`, ... before the bin `AHEAD` bins from now, and in its neighbours.

    The median, not the maximum or the mean: a burst on one day is not expected on the next.
    """
    rates: list[float] = []
    for back in range(1, times + 1):
        at = len(bins) - 1 + AHEAD - back * lag
        if at < 1:
            break
        rates += [mean for mean in bins[at - 1 : at + 2] if mean is not None]
    return _median(rates)


def _levelled(usual: Sequence[float | None], bins: Sequence[float | None], scale: float | None) -> Row:
    """Return the usual rates of the next bins, times the ratio of the present level to the usual one."""
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
    """Return level, trend, mean absolute innovation and season after the last of `bins`, whose number is `number`."""
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
    """Return the first level and season, once a day was observed (80 % of its bins known)."""
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
    """Round the mean to three digits, one object for all equal ones: 15 days take about 35 KB instead of 138 KB."""
    rounded = float(f"{mean:.3g}")
    return _EQUAL.setdefault(rounded, rounded)
