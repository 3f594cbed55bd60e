"""Update of the evidence of canary analysis with one window of samples. Pure.

The tests are exact for independent requests. However, requests that share a batch, a queue or a stall are not
independent, and a pod is slower just after its start than later. The corrections for these effects only weaken the
evidence. They delay a rollback by seconds, but never prevent one.

- Batches and bursts: several requests count as one trial. The number of requests per trial follows from the batches,
  the spread between windows, and how much of a deviation carries over to the next window.
- One stall: a window counts for at most a third (for latency, an eighth) of the evidence that a rollback needs.
- A draining queue: a window in which the canary's median latency falls adds no evidence against the canary.
- Cold pods: latencies count from `SETTLE_S` after the newest pod's first answer. Very late responses count from
  `FIRST_S` after the first answer if their execution takes longer, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halcyon.scaling.canary.data import CanaryMemory, Rules, Sample, Track
from halcyon.scaling.canary.sequential_tests import Blocks, Tally, log_e
from halcyon.scaling.histogram import Histogram

QUANTILE = 0.95
LATE_MARGIN = 0.025
"""Maximum difference between the shares of late responses of the canary and the stable revision at which the canary
passes. It must be above 0: if neither revision has late responses, no amount of data could otherwise show that the
canary is acceptable."""
MIN_FOR_QUANTILE = 100
"""Minimum number of responses from the stable revision before its 95th percentile is used. Of 100 responses, five are
above this percentile."""
MIN_WINDOWS, MIN_LATE_WINDOWS = 3, 8
"""Minimum numbers of windows with evidence before a rollback. The first is for failed or very late requests, the second
for late ones. A single window can contribute only a part of the evidence, so that one stall causes no rollback."""
VERY_LATE = 4.0
"""Minimum ratio of a response's latency to the stable revision's 95th percentile for the response to be very late. If
`latency_ratio` is larger, it is used instead."""
FIRST_S, SETTLE_S, MAX_SETTLE_S, SETTLE_RESPONSES = 3.0, 15.0, 60.0, 150
"""Seconds since a new pod's first response after which its latencies count as evidence: `FIRST_S` for very late
responses, `SETTLE_S` for others. For a slow model, `SETTLE_RESPONSES` times the stable revision's 95th percentile
replaces `SETTLE_S`, up to `MAX_SETTLE_S`."""
MIN_COMPUTE_RATIO = 2.0
"""Minimum ratio of the canary's execution time to that of the stable revision at which very late responses soon after a
start count as evidence. At a lower ratio, the queue from the cold start may be the cause."""
IMPROVES = 0.85
"""Ratio of the canary's median latency to that of the previous window, below which the canary's queue is considered to
be draining."""
MIN_FOR_MEDIAN = 20
"""Minimum number of responses in a window for its median latency to be used. The median of fewer responses may be lower
by chance."""
RECENT_WINDOWS = 5
"""Number of windows over which the stable revision's share of failed or late requests is averaged. Older windows have a
lower weight."""
_LATE_SPREAD = 3.0
"""Assumed ratio of the variance of late responses to that of independent ones, used until the ratio is measured. It is
above 1 because late responses share queues."""
_LIFTS = (0.02, 0.05, 0.1, 0.25, 0.6)
"""Alternative hypotheses about the canary, from barely worse to broken. For each `lift` in this tuple, the assumed
share of failed or late requests is limit + lift x (1 - limit)."""
_ERRORS_PRIOR, _LATE_PRIOR = 0.001, 1 - QUANTILE
"""Shares of failed and of late requests that are assumed until there is data. A wrong assumption delays a decision, but
does not raise the error rates."""


def remembered(memory: CanaryMemory, stable: Sample, canary: Sample, rules: Rules) -> CanaryMemory:
    """Return the memory updated with the samples of one window.

    `stable` and `canary` are the samples of the two revisions in this window.
    """
    batches = _counted_batches(memory.batches, canary)
    # Requests per batch before this window: a window's data must not determine its own weight.
    requests_per_batch = _ratio(memory.batches) or _ratio(batches) or 1.0
    typical_s = _median_s(canary)
    late, very_late = _followed_latency(
        memory, stable, canary, rules, requests_per_batch=requests_per_batch, typical_s=typical_s
    )
    return replace(
        memory,
        errors=_followed_errors(memory.errors, stable, canary, rules, requests_per_batch),
        late=late,
        very_late=very_late,
        typical_s=typical_s,
        queue=_followed_queue(memory, stable, canary, rules),
        requests=(memory.requests[0] + stable.requests, memory.requests[1] + canary.requests),
        batches=batches,
        stable=_joined(memory.stable, stable.latency),
        canary=_joined(memory.canary, canary.latency),
    )


def _counted_batches(counted: tuple[int, int], canary: Sample) -> tuple[int, int]:
    """Return `CanaryMemory.batches` after a window."""
    if canary.batches is None:
        return counted
    # A report of more batches than requests is wrong, so the batches are capped at the requests.
    return counted[0] + canary.requests, counted[1] + min(canary.batches, canary.requests)


def _ratio(batches: tuple[int, int]) -> float | None:
    """Return the number of requests per batch; None if there are no batches."""
    return batches[0] / batches[1] if batches[1] else None


def _median_s(sample: Sample) -> float | None:
    """Return the median latency of a window, in seconds; None if it has too few responses."""
    if sample.latency is None or sample.latency.total < MIN_FOR_MEDIAN:
        return None
    return sample.latency.quantile(0.5)


def _followed_errors(track: Track, stable: Sample, canary: Sample, rules: Rules, requests_per_batch: float) -> Track:
    """Return the comparison of failures updated with one window; unchanged if failures aren't compared."""
    margin = rules.error_margin
    if margin is None:
        return track
    return _followed(
        track,
        Tally(stable.failures, stable.requests),
        Tally(canary.failures, canary.requests),
        slack=(margin, margin),
        prior=_ERRORS_PRIOR,
        alike=requests_per_batch,
        most=_most(rules.part),
    )


def _followed_latency(
    memory: CanaryMemory,
    stable: Sample,
    canary: Sample,
    rules: Rules,
    *,
    requests_per_batch: float,
    typical_s: float | None,
) -> tuple[Track, Track]:
    """Return the comparisons of late and of very late responses, updated with one window.

    They are unchanged if latencies aren't compared, or if the histograms can't be. `typical_s` is the canary's median
    latency in this window.
    """
    history, ratio = memory.stable, rules.latency_ratio
    if ratio is None or history is None or not _alike(history, stable.latency, canary.latency):
        return memory.late, memory.very_late
    settles_s = _settles_s(history)
    improves = memory.typical_s is not None and typical_s is not None and typical_s < IMPROVES * memory.typical_s
    is_queue = canary.newest_s < settles_s and not _computes_longer(stable, canary)

    def followed(track: Track, ratio: float, from_s: float, windows: int, *, is_excused: bool) -> Track:
        """Return a comparison updated with the responses that are later than the stable revision's by a ratio."""
        bounds = late_bounds(history, ratio) if canary.newest_s >= from_s else None
        if bounds is None:
            return track
        return _followed(
            track,
            _above(stable.latency, bounds[0]),
            _above(canary.latency, bounds[1]),
            slack=(0.0, LATE_MARGIN),
            prior=_LATE_PRIOR,
            alike=requests_per_batch,
            # Not skipped: windows may not be chosen by their outcome, or the error rate doesn't hold.
            most=0.0 if is_excused else _most(rules.part / 2, windows),
            own=_LATE_SPREAD,
        )

    return (
        followed(memory.late, ratio, settles_s, MIN_LATE_WINDOWS, is_excused=improves),
        followed(memory.very_late, max(VERY_LATE, ratio), FIRST_S, MIN_WINDOWS, is_excused=improves or is_queue),
    )


def _followed_queue(memory: CanaryMemory, stable: Sample, canary: Sample, rules: Rules) -> Blocks:
    """Return the comparison of queue times updated with one window; unchanged if the window has no evidence."""
    if rules.queue_ratio is None or canary.newest_s < _settles_s(memory.stable):
        return memory.queue
    stable_s, canary_s = _waited(stable, rules), _waited(canary, rules)
    if stable_s is None or canary_s is None:
        return memory.queue
    return memory.queue.after((stable_s, 1, canary_s, 1))


def _computes_longer(stable: Sample, canary: Sample) -> bool:
    """Return whether the canary executes requests too slowly for a cold start to explain very late responses."""
    stable_s, canary_s = stable.compute_s, canary.compute_s
    return stable_s is not None and canary_s is not None and canary_s > MIN_COMPUTE_RATIO * stable_s


def _settles_s(stable: Histogram | None) -> float:
    """Return how many seconds after a pod's first response its latencies begin to count as evidence."""
    quantile_s = None if stable is None else stable.quantile(QUANTILE)
    return SETTLE_S if quantile_s is None else min(max(SETTLE_RESPONSES * quantile_s, SETTLE_S), MAX_SETTLE_S)


def _most(level: float, windows: int = MIN_WINDOWS) -> float:
    """Return the upper limit of the logarithm of one window's E-variable.

    With this limit, the evidence of `windows` windows can reach the p-value `level`, but that of a single window can't.
    The limit includes a small surplus, because part of the capital is never bet and doesn't grow.
    """
    return (math.log(1 / level) + 0.5) / windows


def _followed(
    track: Track,
    stable: Tally,
    canary: Tally,
    *,
    slack: tuple[float, float],
    prior: float,
    alike: float,
    most: float,
    own: float = 1.0,
) -> Track:
    """Return the comparison updated with one window of requests to both revisions.

    `slack` contains two limits for the canary's share minus the stable revision's share. Above the first limit the
    canary is worse; below the second it passes.
    """
    if not stable.trials or not canary.trials:
        return track
    # Bets use only data from before the window.
    q = track.recent.guess(prior)
    limit = min(q + slack[0], 0.98)
    up = [(q, limit + (1 - limit) * lift) for lift in _LIFTS]
    down = [(q, min(q + slack[1] / 2, 0.99)), (q, q), (q, q / 3)]
    worse, fine = max(alike, track.spread.factor(own)), max(alike, track.spread.factor())
    totals = track.stable + stable, track.canary + canary
    return Track(
        track.worse.after([log_e(stable, canary, bet, slack[0]) for bet in up], design=worse, most=most),
        track.fine.after([log_e(stable, canary, bet, slack[1]) for bet in down], design=fine),
        track.spread.after((stable, canary), totals, prior=prior),
        *totals,
        track.recent.faded(RECENT_WINDOWS) + stable,
    )


def late_bounds(stable: Histogram, ratio: float) -> tuple[float, float] | None:
    """Return the latencies above which a response counts as late, as (limit for stable, limit for the canary).

    `stable` is the histogram of earlier windows. Return None if it has too few responses, or if a limit is above its
    last bound.
    """
    if stable.total < MIN_FOR_QUANTILE:
        return None
    bound_s = stable.least_bound(QUANTILE)
    allowed = None if bound_s is None else stable.bound_above(bound_s * ratio)
    return None if bound_s is None or allowed is None else (bound_s, allowed)


def _alike(*histograms: Histogram | None) -> bool:
    bounds = {None if histogram is None else histogram.bounds_s for histogram in histograms}
    return len(bounds) == 1 and None not in bounds


def _above(histogram: Histogram | None, bound_s: float) -> Tally:
    return Tally() if histogram is None else Tally(histogram.above(bound_s), histogram.total)


def _joined(old: Histogram | None, new: Histogram | None) -> Histogram | None:
    if old is None or new is None:
        return old if new is None else new
    # If the bounds differ, a newer agent reports other buckets. The tests have already used the old counts.
    return old + new if old.bounds_s == new.bounds_s else new


def _waited(sample: Sample, rules: Rules) -> float | None:
    """Return the logarithm of a sample's mean queue time in seconds; None if it is unknown.

    Before the logarithm is taken, `queue_floor_s` is added.
    """
    if sample.queue_us is None or not sample.answered:
        return None
    return math.log(sample.queue_us / 1e6 / sample.answered + rules.queue_floor_s)
