"""Prediction of the next recurring spike, from the onsets, lengths and heights of the past spikes. Pure.

A bet is a prediction of the next onset. It depends on the spikes so far:

- After one spike, there is no bet.
- After two spikes, the bet is the last onset plus the interval between them, if no bet has been wrong so far.
- After more spikes whose newest intervals agree, the bet is the last onset plus the mean of the intervals that agree.
- After a wrong bet, there is no new bet until two later intervals agree.

Out of scope: the detection of spikes, and when a bet is wrong (`recurring_spikes`).
"""

from __future__ import annotations

from halcyon.scaling.frozen import immutable

MIN_PERIOD_S = 120.0
"""Minimum interval between spikes that are predicted, in seconds. Pods for more frequent spikes are kept from one spike
to the next anyway."""
MAX_PERIOD_S = 86_400.0
"""Maximum interval between spikes that are predicted, in seconds. Longer intervals are left to the seasons."""
AGREE = 0.1
"""Maximum relative difference at which two intervals between spikes count as equal. The intervals of timers, cron jobs
and habits stay within this limit, but only one pair in 20 of exponentially distributed intervals does. With 5 %, spikes
with 30 s of jitter were missed."""
AGREE_S = 15.0
"""Difference, in seconds, below which two intervals between spikes always count as equal, however short they are."""
MAX_AGREE_S = 600.0
"""Maximum difference, in seconds, at which two intervals between spikes count as equal, however long they are. A spike
predicted ten minutes too early costs 15 minutes of unused pods."""
MIN_MARGIN_S = 8.0
"""Minimum margin, in seconds, before and after the predicted time of a spike. Detecting a spike takes a few seconds,
and jobs start a few seconds apart."""
FIRST_MARGIN = 0.02
"""Margin before and after the predicted time of a spike while only one interval is known, and its jitter is unknown.
The unit is the interval."""
MAX_FIRST_MARGIN_S = 60.0
"""Maximum margin before and after the predicted time of a spike if only one interval is known, in seconds."""


@immutable(frozen=True, slots=True)
class Spike:
    """Past spike of the arrival rate, with its onset, length and height."""

    onset: float
    length_s: float
    height: float
    """Height of the spike in requests per second: the mean of the arrival rate, weighted by the rate itself. For a
    ramp, the height is two thirds of the peak."""


@immutable(frozen=True, slots=True)
class Bet:
    """Prediction of the next spike, made at the end of each spike: its onset, length and height.

    Times are in seconds, the height is in requests per second.
    """

    due: float
    margin_s: float
    period_s: float
    height: float
    length_s: float
    seen: int
    """Number of past spikes on which the prediction is based."""


def predicted(spikes: tuple[Spike, ...], wrong_at: float | None) -> Bet | None:
    """Predict the next spike, once the last of `spikes` has ended. Return None if there is too little evidence.

    `wrong_at` is the time at which a prediction was last wrong. Only intervals that ended later are used.
    """
    if len(spikes) < 2:
        return None
    last = spikes[-1].onset
    newest = last - spikes[-2].onset
    agreeing: list[float] = []
    for later, earlier in zip(reversed(spikes), reversed(spikes[:-1]), strict=False):
        interval = later.onset - earlier.onset
        if abs(interval - newest) > tolerance(newest) or (wrong_at is not None and later.onset < wrong_at):
            break
        agreeing.append(interval)
    if len(agreeing) < (1 if wrong_at is None else 2):
        return None
    period = sum(agreeing) / len(agreeing)
    if not MIN_PERIOD_S * (1 - AGREE) <= period <= MAX_PERIOD_S * (1 + AGREE):
        return None
    margin = min(FIRST_MARGIN * period, MAX_FIRST_MARGIN_S)
    if len(agreeing) > 1:
        margin = 2 * max(abs(interval - period) for interval in agreeing)
    behind = spikes[-min(len(agreeing) + 1, 5) :]
    heights, lengths = sorted(spike.height for spike in behind), sorted(spike.length_s for spike in behind)
    return Bet(
        due=last + period,
        margin_s=min(max(margin, MIN_MARGIN_S), tolerance(period)),
        period_s=period,
        height=heights[-1],
        length_s=lengths[len(lengths) // 2],
        seen=len(agreeing) + 1,
    )


def tolerance(interval_s: float) -> float:
    """Return the maximum difference, in seconds, at which two intervals of about `interval_s` count as equal."""
    return min(max(AGREE_S, AGREE * interval_s), MAX_AGREE_S)
