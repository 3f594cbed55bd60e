"""Protection of the clients of a served model during its measurement.

It determines the rate of the next step, and the bounds for the clients. Pure.

The requests of the benchmark wait in the same queue as those of other clients, so their latency and failures represent
those of the clients. The first step has one caller with one request in flight, and shows the latency that clients had
before. Each further step doubles the rate. Once the latency is above half of its bound, a step raises the rate by only
a quarter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halcyon.api.stored.replicas_in_force import replicas_in_force
from halcyon_cli.kube import fields
from halcyon_measure.results.number_text import significant

Json = Mapping[str, Any]

STEP_S = 4.0
"""Length of a step, in seconds."""
FIRST_SHARE = 0.5
"""Rate of the second step, as a share of the response rate with one caller."""
MAX_FAILED = 0.01
"""Share of failed requests above which clients count as affected. It is higher if requests already failed in the first
step."""
MIN_FAILED = 3
"""Minimum number of failed requests for which `MAX_FAILED` applies."""


@dataclass(frozen=True)
class Step:
    """Measurement of one step. Times are in seconds."""

    rate_rps: float
    due: int
    failed: int
    p95_s: float | None
    """95th percentile of the latency; None if no request was answered."""


@dataclass(frozen=True)
class ClientBounds:
    """Bounds of latency and failures, above which the measurement affects clients too much."""

    p95_s: float
    failed: float
    """Maximum share of failed requests."""
    source: str
    """Source of the latency bound, for messages."""


def bounds(first: Step, latency_s: float | None) -> ClientBounds | None:
    """Return the bounds for clients; None if no request of the first step was answered.

    The latency bound is the model's objective if the first step's latency is below it, otherwise twice that latency.
    """
    if first.p95_s is None:
        return None
    failed = max(MAX_FAILED, 2 * first.failed / max(first.due, 1))
    if latency_s is not None and latency_s > first.p95_s:
        return ClientBounds(latency_s, failed, "spec.scaling.targets.latency")
    return ClientBounds(2 * first.p95_s, failed, "twice what it was")


def crossed(step: Step, limits: ClientBounds) -> str:
    """Return a sentence if a step exceeded a bound; else an empty text."""
    at = f"at {significant(step.rate_rps, 3)} requests/s"
    if step.failed >= MIN_FAILED and step.failed / max(step.due, 1) > limits.failed:
        return f"{at}, {step.failed} of {step.due} requests failed; the bound is {100 * limits.failed:.1f} %"
    if step.p95_s is not None and step.p95_s > limits.p95_s:
        return f"{at}, p95 was {1000 * step.p95_s:.1f} ms; the bound is {1000 * limits.p95_s:.1f} ms ({limits.source})"
    return ""


def crossed_within(seconds: Sequence[tuple[int, int, float | None]], rate_rps: float, limits: ClientBounds) -> str:
    """Return a sentence if the last two seconds of a running step exceed a bound; otherwise an empty text.

    Args:
        seconds: (answered, failed, median latency in seconds) of each second so far.
        rate_rps: rate of the step.
        limits: the bounds.
    """
    if not seconds:
        return ""
    answered, failed = sum(second[0] for second in seconds[-2:]), sum(second[1] for second in seconds[-2:])
    if failed >= MIN_FAILED and failed / max(answered + failed, 1) > limits.failed:
        return f"at {significant(rate_rps, 3)} requests/s, {failed} of {answered + failed} requests failed within 2 s"
    median = seconds[-1][2]
    if median is not None and median > limits.p95_s:
        return f"at {significant(rate_rps, 3)} requests/s, the median was {1000 * median:.1f} ms; the bound is {1000 * limits.p95_s:.1f} ms"
    # No answer in the last two seconds, although requests were due.
    if len(seconds) >= 2 and answered + failed == 0 and rate_rps * 2 >= MIN_FAILED and limits.p95_s < 2:
        return f"at {significant(rate_rps, 3)} requests/s, no request was answered within 2 s"
    return ""


def next_rate(first: Step, steps: Sequence[Step], limits: ClientBounds, highest_rps: float) -> float | None:
    """Return the rate of the next step; None after a step at the highest rate.

    `steps` contains the steps after the first one, all of which stayed within the bounds.
    """
    if not steps:
        return min(max(FIRST_SHARE * first.rate_rps, 0.5), highest_rps)
    last = steps[-1]
    if last.rate_rps >= highest_rps:
        return None
    is_far = last.p95_s is None or last.p95_s < limits.p95_s / 2
    return min(last.rate_rps * (2.0 if is_far else 1.25), highest_rps)


def refusal(model: Json) -> str:
    """Return the reason why the served model must not be put under load now; empty if it may be."""
    name = str(fields.mapping(model.get("metadata")).get("name"))
    spec, status = fields.mapping(model.get("spec")), fields.mapping(model.get("status"))
    scaling = fields.mapping(spec.get("scaling"))
    conditions = {condition.get("type"): condition for condition in fields.mappings(status.get("conditions"))}
    if conditions.get("Reconciling", {}).get("status") == "True":
        return f"{name} is in a rollout: {conditions['Reconciling'].get('message')}; wait until halcyon status {name} is done"
    if scaling.get("mode") == "Paused":
        return f"{name} is paused (spec.scaling.mode), so it can't grow with a load; halcyon resume {name}, or measure its copy"
    replicas, max_replicas = replicas_in_force(model), fields.count(scaling.get("maxReplicas"))
    if replicas == 0:
        return f"{name} is at zero replicas, and a bench would wake it; measure its copy, without --live"
    if max_replicas is not None and replicas >= max_replicas > 1:
        return f"{name} has {replicas} replicas, its maximum, so its clients would bear the load; wait, or measure its copy, without --live"
    if conditions.get("Ready", {}).get("status") != "True":
        return f"{name} isn't ready: {conditions.get('Ready', {}).get('message', 'no state yet')}; halcyon diagnose {name} finds the cause"
    return ""
