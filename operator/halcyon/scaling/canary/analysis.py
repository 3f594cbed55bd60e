"""Canary analysis: comparison of a new revision (the canary) with the serving one (stable). Pure.

The decision is to promote the canary, to wait, or to roll back. `judge` takes a window, which is the samples of both
revisions since its last call, and the memory that the last call returned. It may be called at any interval;
`sequential_tests` explains why and cites the sources. Three checks compare the revisions:

- errors: the canary is worse if its share of failed requests exceeds that of the stable revision by more than
  `error_margin`. The test uses two-stream E-variables and is exact.
- latency: the canary is worse if too many of its responses are late. A response is late if it is slower than
  `latency_ratio` times the 95th percentile of the stable revision. Too many are late if their share exceeds the stable
  revision's share of responses above its 95th percentile. The test is the same as for errors.
- queue: the canary is worse if its time in the server's queue exceeds `queue_ratio` times that of the stable revision.
  Both times are geometric means over windows, computed after adding `queue_floor_s`. The test is an asymptotic
  confidence sequence.

The canary is rolled back if any check finds it worse, and promoted if all checks find it fine. In all other cases the
decision is to wait.

Error rates: if both revisions are equal, the probability of a rollback is at most `alpha`, over all calls of a rollout
and all checks together. Each check therefore uses an equal part of `alpha`. If the canary exceeds a limit, the
probability of a promotion is at most `beta`. A promotion needs every check, so each one uses all of `beta`.

`evidence` adds a window's samples to the tests, and corrects for requests that are not independent and for pods that
have just started.
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
from halcyon.scaling.canary.evidence import MIN_FOR_QUANTILE, QUANTILE, late_bounds, remembered
from halcyon.scaling.canary.sequential_tests import from_log
from halcyon.scaling.histogram import Histogram

__all__ = ["CanaryDecision", "CanaryMemory", "Evidence", "Histogram", "Rules", "Sample", "judge"]

_EXACT = "E-variables of two Bernoulli streams, any time"
_MEANS = "asymptotic confidence sequence of mean logarithms by blocks of time"


def judge(stable: Sample, canary: Sample, rules: Rules, memory: CanaryMemory | None = None) -> CanaryDecision:
    """Decide what to do with the canary, from all samples so far.

    Args:
        stable: sample of the serving revision since the last call.
        canary: sample of the new revision over the same time.
        rules: tolerances. They must be the same in every call of a rollout; otherwise the error rates are not
            guaranteed.
        memory: memory returned by the last call; None in the first call. `CanaryMemory.to_plain` saves it across
            restarts.
    """
    memory = remembered(memory or CanaryMemory(), stable, canary, rules)
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


def _errors(memory: CanaryMemory, rules: Rules) -> Evidence | None:
    if rules.error_margin is None:
        return None
    track = memory.errors
    stable_share, canary_share = track.stable.share, track.canary.share
    if stable_share is None or canary_share is None:
        return Evidence(name="errors", finding="open", test=_EXACT, why="no interval has requests to both revisions")
    limit = stable_share + rules.error_margin
    evidence = _shares("errors", track, rules.part, rules, stable=stable_share, canary=canary_share, limit=limit)
    reason = (
        f"errors {_percent(canary_share)} of {track.canary.trials} requests against {_percent(stable_share)} of "
        f"{track.stable.trials} (at most {_percent(limit)}{_p(evidence)})"
    )
    return replace(evidence, why=reason)


def _latency(memory: CanaryMemory, rules: Rules, stable: Sample, canary: Sample) -> Evidence | None:
    if rules.latency_ratio is None:
        return None
    missing = [name for name, sample in (("stable", stable), ("canary", canary)) if sample.latency is None]
    history = memory.stable
    if history is None or memory.canary is None:
        missing_text = " and ".join(missing) or "either"
        return Evidence(
            name="latency", finding="unknown", test=_EXACT, why=f"no latencies of {missing_text} are reported"
        )
    stable_s, canary_s = history.quantile(QUANTILE), memory.canary.quantile(QUANTILE)
    bounds = late_bounds(history, rules.latency_ratio)
    if bounds is None:
        few = history.total < MIN_FOR_QUANTILE
        why = (
            f"the stable revision's p95 requires {MIN_FOR_QUANTILE} responses, but there are only {history.total}"
            if few
            else f"the stable revision's p95, or {rules.latency_ratio:g} times it, is above the largest bound of {history.bounds_s[-1]:g} s"
        )
        return Evidence(
            name="latency", finding="open" if few else "unknown", test=_EXACT, stable=stable_s, canary=canary_s, why=why
        )
    for track in (memory.very_late, memory.late):
        evidence = _shares("latency", track, rules.part / 2, rules, stable=stable_s, canary=canary_s, limit=bounds[1])
        if evidence.finding == "worse":
            break
    slow = track.canary.share, track.stable.share
    shares = "" if None in slow else f"; {_percent(slow[0] or 0)} and {_percent(slow[1] or 0)} are late"
    canary_text = f"above {memory.canary.bounds_s[-1]:g} s" if canary_s is None else _time(canary_s)
    return replace(
        evidence,
        why=f"p95 {canary_text} of {memory.canary.total} responses against {_time(stable_s or 0.0)} of {history.total} "
        f"(at most {_time(bounds[1])}{shares}{_p(evidence)})",
    )


def _shares(
    name: Name, track: Track, level: float, rules: Rules, *, stable: float | None, canary: float | None, limit: float
) -> Evidence:
    p_worse, p_fine = min(1.0, from_log(-track.worse.peak)), min(1.0, from_log(-track.fine.now))
    finding: Finding = "open"
    if p_worse <= level:
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
        sizes=(int(track.stable.trials), int(track.canary.trials)),
        p_worse=p_worse,
        p_fine=p_fine,
        level=level,
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
        return Evidence(name="queue", finding="open", test=_MEANS, why="no interval has responses of both revisions")
    first, n, second, m = blocks.totals
    worse, fine = blocks.difference(rules.part), blocks.difference(rules.beta)
    finding: Finding = "open"
    interval = None
    if worse is not None and fine is not None:
        interval = from_log(worse[0]), from_log(fine[1])
        finding = "worse" if interval[0] > rules.queue_ratio else "fine" if interval[1] < rules.queue_ratio else "open"
    stable_s, canary_s = (max(from_log(mean) - rules.queue_floor_s, 0.0) for mean in (first / n, second / m))
    limit = rules.queue_ratio * (stable_s + rules.queue_floor_s) - rules.queue_floor_s
    between = "" if interval is None else f"; ratio {interval[0]:.2f} to {interval[1]:.2f}"
    return Evidence(
        name="queue",
        finding=finding,
        test=_MEANS,
        stable=stable_s,
        canary=canary_s,
        limit=limit,
        sizes=memory.requests,
        interval=interval,
        level=rules.part,
        why=f"queue {_time(canary_s)} against {_time(stable_s)} (at most {_time(limit)}{between})",
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
        subject = "the new revision" if least == memory.requests[1] else "the stable one"
        return "wait", f"waits: {subject} has received {least} of the {rules.min_requests} requests that each needs"
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
