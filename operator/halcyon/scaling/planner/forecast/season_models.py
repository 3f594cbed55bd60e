"""The three season models, their scores, and the choice of the model that forecasts each of the next bins.

There are three models:

- `day` forecasts the usual rate at this time of day.
- `week` forecasts the usual rate at this time of the week.
- `holt-winters` is the additive Holt-Winters model with a season of one day.

The forecasts of each model are continuously compared with three forecasts that have no season: the last bin, a smoothed
mean, and the median of the last hour. This is done separately for each lead, which is the number of bins ahead. A model
is used only if its error over about a day is clearly below that of the best forecast without a season. A load without a
season therefore gets no forecast. Errors and forecasts are computed once for each bin, when the bin is closed.

The docstring of each constant gives the reason for its value. Most values are conventional. `NEAR`, `HOUR`, `MAX_LEVEL`
and the third forecast without a season were chosen on two production traces and a dozen synthetic loads. Results on
those loads are therefore no proof that the values are right. Out of scope: the history of the bins (`seasonality`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from halcyon.scaling.frozen import immutable

Source = Literal["day", "week", "holt-winters"]

DAY = 288
"""Number of bins in a day."""
WEEK = 7 * DAY
"""Number of bins in a week."""
AHEAD = 4
"""Number of bins for which the arrival rate is forecast. They cover at least the next 15 minutes; pods seldom take
longer to start."""
DAYS = 7
"""Number of days in the median of the daily model. The median includes each weekday once, so one or two unusual days
never determine it."""
WEEKS = 2
"""Number of weeks in the median of the weekly model, which is the number of stored weeks."""
NEAR = 5
"""Number of bins (25 min in total) in which the present arrival rate is compared with the usual rate. With a longer
time, the forecast would react too late: real load changes irregularly, and the rate of an hour ago says little about
the present. In a first test on two traces, 20 and 30 min gave better results than 10 and 60 min. The median of the five
ratios is used, so that a burst does not count as a new level."""
HOUR = 12
"""Number of bins in one hour. The median of the last hour is used as a forecast that has no season. If more than `HOUR`
bins in a row were not observed, the models are updated only for the newest `HOUR` of these bins."""
TRUST = 0.1
"""Share of the mean arrival rate that is added to the present and to the usual rate before they are compared. This
keeps a few requests at night from counting as a new level."""
MAX_LEVEL = 4.0
"""Maximum factor, the ratio of the present rate to the usual one, by which a forecast is scaled. At a higher ratio,
planning with the present rate is sufficient. There is no minimum factor. In an outage or on a holiday, scaling the
forecast down to 5 % does no harm, because forecasts only raise the planned rate."""
ALPHA = 0.2
"""Smoothing factor for the Holt-Winters level, which averages over five bins. It is also that of the smoothed mean with
which a model's error is compared."""
BETA = 0.02
"""Smoothing factor for the Holt-Winters trend, which averages over fifty bins."""
PHI = 0.8
"""Damping factor per bin of the Holt-Winters trend, which thus fades within a few bins. The planner detects short
trends itself, with a finer resolution."""
GAMMA = 0.25
"""Smoothing factor for the Holt-Winters season, which averages over four days."""
CLIP = 4.0
"""Maximum size of a Holt-Winters innovation (forecast error), as a multiple of the mean absolute innovation. Larger
innovations are reduced to this size, so that bursts are not learnt as part of the season."""
FADE = math.exp(-1 / DAY)
"""Factor by which the weight of older forecast errors falls with each bin. After one day, the weight is 1/e. The scores
therefore cover about the last 24 h, and single errors need not be stored."""
JUDGED = (1 - math.exp(-1)) * (DAY - 1)
"""Minimum weight of a model's score before the model is used. This weight is reached after one whole day, so that every
hour of a day is included."""
MARGIN = 0.9
"""Maximum ratio of a season model's mean absolute error to that of the best forecast without a season, at which the
model is used. A difference of 10 % rules out chance. In 21 synthetic runs of ten days without a season, no model was
used."""

SOURCES: tuple[Source, ...] = ("day", "week", "holt-winters")

Row = tuple[float | None, ...]
"""Forecasts made at the end of one bin: first `BASELINES` forecasts without a season, then `AHEAD` forecasts for each
model."""
BASELINES = 3
"""Number of simple forecasts that have no season: the last bin, the smoothed mean, and the median of the last hour. The
median is included for bursty loads, where it has a smaller error than any mean."""
Score = tuple[float, float, float, float, float]
"""Forecast errors of a season model, summed over bins with less weight for older bins. The fields are (sum of the
weights, absolute errors of the model, absolute errors of each forecast without a season)."""
Choice = tuple[float, int, float, float] | None
"""Season model that forecasts the rate a certain number of bins ahead, as (forecast rate, index of the model in
`SOURCES`, mean absolute error of the model, mean absolute error of the best forecast without a season); None if no
model is used."""

UNCHOSEN: tuple[Choice, ...] = (None,) * AHEAD
"""Value of `Fit.choices` while no season model is used, for example during the first day."""
_UNSCORED: Score = (0.0, 0.0, 0.0, 0.0, 0.0)
"""Score of a model before any of its forecasts has been compared with a bin."""
USUAL = NEAR + AHEAD
"""Number of bins for which usual rates are stored: the last `NEAR` bins and the next `AHEAD` bins."""


@immutable(frozen=True, slots=True)
class Fit:
    """State of the three season models and their scores, updated when a bin is closed.

    The state contains only numbers.
    """

    scale: float | None = None
    """Mean arrival rate, smoothed with a time constant of one day, in requests per second."""
    calm: float | None = None
    """Mean arrival rate, smoothed with the factor `ALPHA`, in requests per second."""
    level: float = 0.0
    trend: float = 0.0
    spread: float = 0.0
    """Mean absolute innovation (forecast error) of Holt-Winters, in requests per second."""
    season: tuple[float, ...] = ()
    """Difference from the Holt-Winters level for each bin of the day, in requests per second; empty until one day has
    been observed."""
    day: tuple[float | None, ...] = (None,) * USUAL
    """Usual arrival rates according to the daily model, for the last `NEAR` and the next `AHEAD` bins. The field `week`
    contains the rates according to the weekly model."""
    week: tuple[float | None, ...] = (None,) * USUAL
    rows: tuple[Row, ...] = ()
    """Forecasts that were made at the end of the last `AHEAD` bins, newest first."""
    scores: tuple[Score, ...] = (_UNSCORED,) * (len(SOURCES) * AHEAD)
    """Scores of the season models, sorted by model and then by the number of bins ahead."""
    choices: tuple[Choice, ...] = UNCHOSEN
    """Season model used for each number of bins ahead; None if no model is good enough."""


def fitted(fit: Fit, bins: Sequence[float | None], number: int) -> Fit:
    """Return the models updated with the bin that was just closed.

    This bin is the last one in `bins` and has the number `number`.
    """
    mean = bins[-1]
    scores = fit.scores if mean is None else _scored(fit, mean)
    scale = _smooth(fit.scale, mean, 1 / min(len(bins), DAY))
    calm = _smooth(fit.calm, mean, ALPHA)
    level, trend, spread, season = _holt_winters(fit, bins, number)
    day = (*fit.day[1:], _usual(bins, DAY, DAYS))
    week = (*fit.week[1:], _usual(bins, WEEK, WEEKS))
    ahead = (*_levelled(day, bins, scale), *_levelled(week, bins, scale), *_continued(level, trend, season, number))
    hour = [value for value in bins[-HOUR:] if value is not None]
    row = (mean, calm, _median(hour), *ahead)
    rows = (row, *fit.rows[: AHEAD - 1])
    return Fit(scale, calm, level, trend, spread, season, day, week, rows, scores, chosen_models(row, scores))


def _scored(fit: Fit, mean: float) -> tuple[Score, ...]:
    """Return the scores updated with the errors of the forecasts for the bin that was just closed.

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


def chosen_models(row: Row, scores: Sequence[Score]) -> tuple[Choice, ...]:
    """Return the season model to use for each number of bins ahead, which is the one with the smallest error.

    No model is used if this error is not below `MARGIN` times the error of the best forecast without a season.
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
    return tuple(chosen) if any(chosen) else UNCHOSEN


def _usual(bins: Sequence[float | None], lag: int, times: int) -> float | None:
    """Return the usual rate of the bin that is `AHEAD` bins after the last of `bins`; None if unknown.

    It is the median of the known rates 1 to `times` periods of `lag` bins earlier, including the two neighbours of each
    bin. A median is used because a burst on one day is not expected to recur on the next, but would change a maximum or
    a mean.
    """
    rates: list[float] = []
    for back in range(1, times + 1):
        at = len(bins) - 1 + AHEAD - back * lag
        if at < 1:
            break
        rates += [mean for mean in bins[at - 1 : at + 2] if mean is not None]
    return _median(rates)


def _levelled(usual: Sequence[float | None], bins: Sequence[float | None], scale: float | None) -> Row:
    """Return the usual rates of the next bins, scaled by the ratio of the present rate to the usual rate."""
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
    """Return the Holt-Winters level, trend, mean absolute innovation and season after the last of `bins`.

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
    """Return the initial Holt-Winters values, once at least 80 % of the bins of the last day are known."""
    day = bins[-DAY:]
    means = [mean for mean in day if mean is not None]
    if len(means) < 0.8 * DAY:
        return 0.0, 0.0, 0.0, ()
    middle = sum(means) / len(means)
    by_slot = [0.0] * DAY
    for back, mean in enumerate(reversed(day)):
        by_slot[(number - back) % DAY] = 0.0 if mean is None else mean - middle
    steps = [abs(b - a) for a, b in pairwise(means)]
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
