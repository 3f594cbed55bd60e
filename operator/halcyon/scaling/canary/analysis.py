"""Canary analysis: compares a new revision (the canary) with the serving one (stable). Pure.

The decision is to promote the canary, to wait, or to roll back. `judge` takes the samples of both revisions since its
last call, and the memory returned by that call. It may be called at any interval; `sequential_tests` gives the reasons
and the sources. Three checks compare the revisions:

check    the canary is worse if                                                 test
errors   its share of failed requests exceeds stable's by more than             E-variables of two streams, exact
         `error_margin`
latency  the share of its responses slower than `latency_ratio` times           the same
         stable's 95th percentile is larger than the share of stable's
         responses slower than that percentile
queue    its mean time in the server's queue exceeds `queue_ratio` times        asymptotic confidence sequence
         stable's, after `queue_floor_s` is added to both

The canary is rolled back if any check finds it worse, and promoted if all checks find it fine. In all other cases the
decision is to wait.

Error rates: if both revisions are equal, the probability of a rollback is at most `alpha`, over all calls of a rollout
and all checks together. Each check therefore uses an equal part of `alpha`. If the canary exceeds a limit, the
probability of a promotion is at most `beta`. A promotion needs every check, so each one uses all of `beta`.
"""

from __future__ import annotations

from dataclasses import replace

from halcyon.scaling.canary.data import (
    Action,
    CanaryDecision,
    CanaryMemory,
    Evidence,
    Finding,
    Name,
    Rules,
    Sample,
    Track,
)
from halcyon.scaling.canary.sequential_tests import Blocks, Tally, from_log, log_e
from halcyon.scaling.histogram import Histogram

__all__ = ["CanaryDecision", "CanaryMemory", "Evidence", "Histogram", "Rules", "Sample", "judge"]

QUANTILE = 0.95
LATE_MARGIN = 0.025
"""Margin by which the canary's share of late responses may exceed stable's and still be fine. It must be above 0: if
neither revision has late responses, no amount of data shows that the canary has fewer."""
MIN_FOR_QUANTILE = 100
"""Minimum number of responses from the stable revision before its 95th percentile is used: five of 100 responses lie
above it."""
MIN_WINDOWS = 3
"""Minimum number of sample windows with requests to both revisions before a rollback is allowed. A single stall of one
second is not evidence against a revision."""
_LIFTS = (0.02, 0.05, 0.1, 0.25, 0.6)
"""Alternative hypotheses about the canary, from barely worse to broken. Each is a `lift`: the share of failed or late
requests that the canary is assumed to have is limit + lift x (1 - limit)."""
_ERRORS_PRIOR, _LATE_PRIOR = 0.001, 1 - QUANTILE
"""Prior shares of failed and of late requests, used before there is data. A wrong prior delays a decision, but does
not raise the error rates."""


_EXACT = "E-variables of two Bernoulli streams, any time"
_MEANS = "asymptotic confidence sequence of means by blocks of time"


def judge(stable: Sample, canary: Sample, rules: Rules, memory: CanaryMemory | None = None) -> CanaryDecision:
    """Decide what to do with the canary, from all samples so far.

    Args:
        stable: sample of the serving revision since the last call.
        canary: sample of the new revision over the same time.
        rules: tolerances. They must be the same in every call of a rollout, or the error rates don't hold.
        memory: memory of the last decision; None in the first call. `CanaryMemory.to_plain` saves it across restarts.
    """
    memory = _remembered(memory or CanaryMemory(), stable, canary, rules)
    checks = tuple(
        check
        for check in (
            _errors(memory, rules),
            _latency(memory, rules, stable, canary),
            _queue(memory, rules, stable, canary),
        )
        if check is not None
    )
    action, why = _decided(checks, memory, rules)
    return CanaryDecision(action=action, why=why, checks=checks, memory=memory)


def _remembered(memory: CanaryMemory, stable: Sample, canary: Sample, rules: Rules) -> CanaryMemory:
    requests, batches = memory.batches
    if canary.batches is not None:
        # A report of more batches than requests is wrong, so the batches are capped at the requests.
        requests, batches = requests + canary.requests, batches + min(canary.batches, canary.requests)
    # Requests per batch before this window: a window's data must not determine its own weight.
    alike = memory.batches[0] / memory.batches[1] if memory.batches[1] else 1.0
    if not memory.batches[1] and batches:
        alike = requests / batches
    margin = rules.error_margin
    errors = memory.errors
    if margin is not None:
        errors = _followed(
            errors,
            Tally(stable.failures, stable.requests),
            Tally(canary.failures, canary.requests),
            slack=(margin, margin),
            prior=_ERRORS_PRIOR,
            alike=alike,
        )
    late, blocks = memory.late, memory.late_blocks
    bounds = _late_bounds(memory.stable, rules)
    if bounds is not None and _alike(memory.stable, stable.latency, canary.latency):
        a, b = _above(stable.latency, bounds[0]), _above(canary.latency, bounds[1])
        blocks = blocks.after((a.events, a.trials, b.events, b.trials))
        late = _followed(
            late,
            a,
            b,
            slack=(0.0, LATE_MARGIN),
            prior=_LATE_PRIOR,
            alike=alike,
        )
    queue = memory.queue
    if rules.queue_ratio is not None and stable.queue_us is not None and canary.queue_us is not None:
        queue = queue.after((*_waited(stable, stable.queue_us, rules), *_waited(canary, canary.queue_us, rules)))
    return replace(
        memory,
        errors=errors,
        late=late,
        late_blocks=blocks,
        queue=queue,
        requests=(memory.requests[0] + stable.requests, memory.requests[1] + canary.requests),
        batches=(requests, batches),
        stable=_joined(memory.stable, stable.latency),
        canary=_joined(memory.canary, canary.latency),
    )


def _followed(
    track: Track, stable: Tally, canary: Tally, *, slack: tuple[float, float], prior: float, alike: float
) -> Track:
    """Return the comparison with one more window of requests to both revisions.

    `slack` contains two limits on the difference between the canary's share and stable's: above the first the canary is
    worse, below the second it is fine.
    """
    if not stable.trials or not canary.trials:
        return track
    # Bets use only data from before the window.
    q = track.stable.guess(prior)
    limit = min(q + slack[0], 0.98)
    up = [(q, limit + (1 - limit) * lift) for lift in _LIFTS]
    down = [(q, min(q + slack[1] / 2, 0.99)), (q, q), (q, q / 3)]
    design = max(alike, track.spread.factor)
    whole = track.stable + stable, track.canary + canary
    return Track(
        track.worse.after([log_e(stable, canary, bet, slack[0]) for bet in up], design=design),
        track.fine.after([log_e(stable, canary, bet, slack[1]) for bet in down], design=design),
        track.spread.after((stable, canary), whole, prior=prior),
        *whole,
    )


def _late_bounds(known: Histogram | None, rules: Rules) -> tuple[float, float] | None:
    """Return the latencies above which a response of (stable, canary) counts as late, from earlier windows only.

    Return None if latency is not checked, or if one of the two latencies can't be determined yet.
    """
    if rules.latency_ratio is None or known is None or known.total < MIN_FOR_QUANTILE:
        return None
    own = known.least_bound(QUANTILE)
    allowed = None if own is None else known.bound_above(own * rules.latency_ratio)
    return None if own is None or allowed is None else (own, allowed)


def _alike(*histograms: Histogram | None) -> bool:
    bounds = {None if histogram is None else histogram.bounds_s for histogram in histograms}
    return len(bounds) == 1 and None not in bounds


def _above(histogram: Histogram | None, bound_s: float) -> Tally:
    return Tally() if histogram is None else Tally(histogram.above(bound_s), histogram.total)


def _joined(known: Histogram | None, more: Histogram | None) -> Histogram | None:
    if known is None or more is None:
        return known if more is None else more
    # If the bounds differ, a newer agent reports other buckets. The tests have already used the old counts.
    return known + more if known.bounds_s == more.bounds_s else more


def _waited(sample: Sample, queue_us: int, rules: Rules) -> tuple[float, float]:
    answered = sample.requests - sample.failures
    return queue_us / 1e6 + rules.queue_floor_s * answered, answered


def _errors(memory: CanaryMemory, rules: Rules) -> Evidence | None:
    if rules.error_margin is None:
        return None
    track = memory.errors
    of_stable, of_canary = track.stable.share, track.canary.share
    if of_stable is None or of_canary is None:
        return Evidence(name="errors", finding="open", test=_EXACT, why="no window with requests to both revisions yet")
    limit = of_stable + rules.error_margin
    evidence = _shares("errors", track, rules, stable=of_stable, canary=of_canary, limit=limit)
    reason = (
        f"errors {_percent(of_canary)} of {track.canary.trials} requests against {_percent(of_stable)} of "
        f"{track.stable.trials} (at most {_percent(limit)}{_p(evidence)})"
    )
    return replace(evidence, why=reason)


def _latency(memory: CanaryMemory, rules: Rules, stable: Sample, canary: Sample) -> Evidence | None:
    if rules.latency_ratio is None:
        return None
    missing = [name for name, sample in (("stable", stable), ("canary", canary)) if sample.latency is None]
    known = memory.stable
    if known is None or memory.canary is None:
        missing_text = " and ".join(missing) or "either"
        return Evidence(
            name="latency", finding="unknown", test=_EXACT, why=f"no latencies of {missing_text} are reported"
        )
    own, its = known.quantile(QUANTILE), memory.canary.quantile(QUANTILE)
    bounds = _late_bounds(known, rules)
    if bounds is None:
        few = known.total < MIN_FOR_QUANTILE
        why = (
            f"stable's p95 requires {MIN_FOR_QUANTILE} responses, and there are {known.total}"
            if few
            else f"stable's p95, or {rules.latency_ratio:g} times it, is above the largest bound of {known.bounds_s[-1]:g} s"
        )
        return Evidence(
            name="latency", finding="open" if few else "unknown", test=_EXACT, stable=own, canary=its, why=why
        )
    evidence = _both(
        _shares("latency", memory.late, rules, stable=own, canary=its, limit=bounds[1]), memory.late_blocks, rules
    )
    slow = memory.late.canary.share, memory.late.stable.share
    shares = "" if None in slow else f"; {_percent(slow[0] or 0)} and {_percent(slow[1] or 0)} are late"
    its_own = f"above {memory.canary.bounds_s[-1]:g} s" if its is None else _time(its)
    return replace(
        evidence,
        why=f"p95 {its_own} of {memory.canary.total} responses against {_time(own or 0.0)} of {known.total} "
        f"(at most {_time(bounds[1])}{shares}{_p(evidence)})",
    )


def _shares(
    name: Name, track: Track, rules: Rules, *, stable: float | None, canary: float | None, limit: float
) -> Evidence:
    p_worse, p_fine = min(1.0, from_log(-track.worse.peak)), min(1.0, from_log(-track.fine.now))
    finding: Finding = "open"
    if p_worse <= rules.part and track.spread.windows >= MIN_WINDOWS:
        finding = "worse"
    elif p_fine <= rules.beta:
        finding = "fine"
    return Evidence(
        name=name,
        finding=finding,
        test=_EXACT,
        stable=stable,
        canary=canary,
        limit=limit,
        sizes=(track.stable.trials, track.canary.trials),
        p_worse=p_worse,
        p_fine=p_fine,
        level=rules.part,
        design=track.spread.factor,
    )


def _both(evidence: Evidence, blocks: Blocks, rules: Rules) -> Evidence:
    """Return the latency check's evidence, with the finding "open" unless the interval over blocks of time confirms it.

    Responses that waited in the same queue are not independent, and the exact test assumes that they are.
    """
    worse, fine = blocks.difference(rules.part), blocks.difference(rules.beta)
    if worse is None or fine is None:
        return replace(evidence, finding="open", test=f"{_EXACT}; {_MEANS}")
    agree = {"worse": worse[0] > 0, "fine": fine[1] < LATE_MARGIN}.get(evidence.finding, False)
    return replace(
        evidence,
        finding=evidence.finding if agree else "open",
        test=f"{_EXACT}; {_MEANS}",
        interval=(worse[0], fine[1]),
    )


def _queue(memory: CanaryMemory, rules: Rules, stable: Sample, canary: Sample) -> Evidence | None:
    if rules.queue_ratio is None:
        return None
    blocks = memory.queue
    if not blocks.windows:
        missing = [name for name, sample in (("stable", stable), ("canary", canary)) if sample.queue_us is None]
        if missing:
            why = f"no queue time of {' and '.join(missing)} is reported"
            return Evidence(name="queue", finding="unknown", test=_MEANS, why=why)
        return Evidence(name="queue", finding="open", test=_MEANS, why="no window with responses of both revisions yet")
    first, n, second, m = blocks.whole
    worse, fine = blocks.ratio(rules.part), blocks.ratio(rules.beta)
    finding: Finding = "open"
    interval = None
    if worse is not None and fine is not None:
        interval = worse[0], fine[1]
        finding = "worse" if interval[0] > rules.queue_ratio else "fine" if interval[1] < rules.queue_ratio else "open"
    own, its = (max(mean - rules.queue_floor_s, 0.0) for mean in (first / n, second / m))
    limit = rules.queue_ratio * first / n - rules.queue_floor_s
    between = "" if interval is None else f"; ratio {interval[0]:.2f} to {interval[1]:.2f}"
    return Evidence(
        name="queue",
        finding=finding,
        test=_MEANS,
        stable=own,
        canary=its,
        limit=limit,
        sizes=(int(n), int(m)),
        interval=interval,
        level=rules.part,
        why=f"queue {_time(its)} against {_time(own)} (at most {_time(limit)}{between})",
    )


def _decided(checks: tuple[Evidence, ...], memory: CanaryMemory, rules: Rules) -> tuple[Action, str]:
    worse = [check.why for check in checks if check.finding == "worse"]
    if worse:
        return "rollback", f"rolled back: the new revision is worse: {'; '.join(worse)}"
    unknown = [check.why for check in checks if check.finding == "unknown"]
    least = min(memory.requests)
    if unknown:
        return "wait", f"waits: {'; '.join(unknown)}"
    if least < rules.min_requests:
        whose = "the new revision" if least == memory.requests[1] else "the stable one"
        return "wait", f"waits: {whose} has received {least} requests, and {rules.min_requests} are required for each"
    undecided = [check.why for check in checks if check.finding == "open"]
    if undecided:
        return "wait", f"waits: not decided yet: {'; '.join(undecided)}"
    return (
        "promote",
        f"promoted: the new revision is as good as the stable one: {'; '.join(check.why for check in checks)}",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.4g} %"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _p(evidence: Evidence) -> str:
    p = evidence.p_worse if evidence.finding == "worse" else evidence.p_fine if evidence.finding == "fine" else None
    return "" if p is None else f"; p {'< 0.0001' if p < 0.0001 else f'= {p:.2g}'}"
