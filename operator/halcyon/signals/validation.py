"""Validation of reports: implausible values, which would affect the replicas, are replaced by None (unknown).

A report with invalid names, times or states is rejected completely. Out of scope: the identity of the sender.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, get_args

from halcyon.api.documents.observation_report import (
    MAX_SIZES,
    AgentReport,
    BalancerSample,
    BatchStats,
    PodSample,
    PodState,
    ReportedHistogram,
    ReportError,
    SlotLatency,
)

MAX_WAITING = 1e6
"""Maximum plausible number of requests that wait in one process. The spec limits the queue of a balancer to 100,000
requests."""
MAX_GPU_SHARE = 1.05
"""Maximum plausible GPU utilisation, as a share. A momentary value can be slightly above 1, but a value such as 80 is a
percentage and therefore invalid."""
MAX_COUNTED = 2.0**53
"""Maximum value of a counter. A float can't represent every integer above this value."""
MAX_PODS = 2048
"""Maximum number of pods in a report. It is twice the maximum number of replicas, so that a rollout's pods fit."""
MAX_NAME_LENGTH = 253
MAX_ERROR_LENGTH = 2048
"""Maximum number of characters of a model's load error. The rest of the text is cut off."""
MAX_FAILURE_LENGTH = 512
"""Maximum number of characters of the reason for a backend's failure. The rest of the text is cut off."""
MAX_VERSIONS = 64
"""Maximum number of versions of a model in a pod. If a pod reports more, the highest are kept, as in the status."""
MAX_ROWS = 65536
"""Maximum number of rows in one batch, which is the same as in the spec of a ModelDeployment."""
MAX_SLOTS = 2
MAX_BOUNDS = 100
"""Maximum number of counts in a latency histogram, which is HAProxy's limit on the counters in one stick-table
entry."""
MAX_MS = 3_600_000
_STATES = frozenset(get_args(PodState))
_LIMITS = (
    ("pending", MAX_WAITING),
    ("gpu", MAX_GPU_SHARE),
    ("engine_used", 1.0),
    *((field, MAX_COUNTED) for field in ("succeeded", "failed", "backend_failed", "canceled")),
    *((field, MAX_COUNTED) for field in ("rows", "executions", "queue_us", "compute_us")),
)


@dataclass(frozen=True)
class ValidatedReport:
    """A report after validation, with only plausible values."""

    report: AgentReport
    implausible: int
    """Number of values that were dropped because they are implausible."""


def validate(report: AgentReport) -> ValidatedReport:
    """Validate a report, and replace its implausible values with None.

    Raises:
        ReportError: the report is malformed, for example a name, a time or a state is invalid.
    """
    pods = [validate_pod(pod, report) for pod in report.pods]
    head = validate_head(report, len(pods))
    return ValidatedReport(
        replace(head.report, pods=tuple(pod for pod, _ in pods)), head.implausible + sum(dropped for _, dropped in pods)
    )


def validate_head(report: AgentReport, pods: int) -> ValidatedReport:
    """Validate a report without its pods. `pods` is the number of pods in the report.

    Raises:
        ReportError: the report is malformed.
    """
    for field in ("namespace", "name", "agent"):
        _check_name(getattr(report, field), field)
    _check_time(report.at, "at")
    if report.sent is not None:
        _check_time(report.sent, "sent")
    if pods > MAX_PODS:
        raise ReportError(f"report of {report.name} has {pods} pods; at most {MAX_PODS} can be real")
    balancer = report.balancer
    implausible = 0
    if balancer is not None and not _is_plausible(balancer):
        balancer, implausible = None, 1
    if balancer is not None and not _is_latency(balancer.latency):
        balancer, implausible = replace(balancer, latency=()), implausible + 1
    if balancer is not None and balancer.clients is not None and not _is_histogram(balancer.clients):
        balancer, implausible = replace(balancer, clients=None), implausible + 1
    return ValidatedReport(replace(report, balancer=balancer), implausible)


def _is_plausible(balancer: BalancerSample) -> bool:
    gauges = (balancer.queued, balancer.inflight, balancer.held)
    counters = (balancer.requests, balancer.rejected, balancer.errors, balancer.unavailable)
    return all(_is_number(g, MAX_WAITING) for g in gauges) and all(_is_number(c, MAX_COUNTED) for c in counters)


def _is_latency(latency: tuple[SlotLatency, ...]) -> bool:
    """Return whether all values of the latency histograms are plausible.

    A single invalid value makes all of them doubtful.
    """
    return len(latency) <= MAX_SLOTS and all(
        _is_short_text(slot.slot)
        and _is_histogram(slot)
        and (slot.failed is None or _is_row((slot.failed,), MAX_COUNTED))
        for slot in latency
    )


def _is_histogram(histogram: ReportedHistogram | SlotLatency) -> bool:
    bounds_ms, counts = histogram.bounds_ms, histogram.counts
    return (
        _is_row(bounds_ms, MAX_MS)
        and _is_row(counts, MAX_COUNTED)
        and 0 < len(bounds_ms) < MAX_BOUNDS
        and len(counts) == len(bounds_ms) + 1
        and all(low < high for low, high in pairwise((0, *bounds_ms)))
    )


def _is_row(values: object, limit: float) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, int) and _is_number(value, limit) for value in values)


def validate_pod(pod: PodSample, report: AgentReport) -> tuple[PodSample, int]:
    """Return a sample of a pod without its implausible values, and the number of values that were dropped.

    Raises:
        ReportError: the sample is malformed.
    """
    _check_name(pod.name, "pods.name")
    _check_time(pod.at, f"{pod.name}.at")
    if not _is_state(pod.state):
        raise ReportError(
            f"report of {report.name}: pod {pod.name} has the invalid state {pod.state!r}; a valid one is ready"
        )
    changes: dict[str, Any] = {
        field: None
        for field, limit in _LIMITS
        if (value := getattr(pod, field)) is not None and not _is_number(value, limit)
    }
    if pod.batches is not None and not _is_batches(pod.batches, report):
        changes["batches"] = None
    implausible = len(changes)
    if pod.load_error is not None:
        if not isinstance(pod.load_error, str):
            raise ReportError(f"report of {report.name}: load_error of pod {pod.name} must be a string")
        changes["load_error"] = pod.load_error[:MAX_ERROR_LENGTH]
    if pod.backend_failure is not None:
        if not isinstance(pod.backend_failure, str):
            raise ReportError(f"report of {report.name}: backend_failure of pod {pod.name} must be a string")
        changes["backend_failure"] = pod.backend_failure[:MAX_FAILURE_LENGTH]
    if not all(_is_short_text(version) for version in pod.versions):
        raise ReportError(f"report of {report.name}: versions of pod {pod.name} must be strings, for example ['1']")
    if len(pod.versions) > MAX_VERSIONS:
        changes["versions"] = pod.versions[-MAX_VERSIONS:]
    return (replace(pod, **changes) if changes else pod), implausible


def _is_batches(batches: BatchStats, report: AgentReport) -> bool:
    """Return whether all batch counters are plausible.

    A single invalid counter makes all of them doubtful, because they come from one response.
    """
    _check_time(batches.at, f"{report.name}.pods.batches.at")
    if len(batches.sizes) > MAX_SIZES or not all(len(size) == 3 for size in batches.sizes):
        return False
    are_integers = all(isinstance(value, int) for size in batches.sizes for value in size)
    return (
        are_integers
        and len({rows for rows, _, _ in batches.sizes}) == len(batches.sizes)
        and all(_is_number(rows, MAX_ROWS) and rows > 0 for rows, _, _ in batches.sizes)
        and all(_is_number(value, MAX_COUNTED) for _, *values in batches.sizes for value in values)
        and (batches.spent_us is None or _is_number(batches.spent_us, MAX_COUNTED))
    )


def _is_state(value: object) -> bool:
    return isinstance(value, str) and value in _STATES


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH


def _is_number(value: object, limit: float) -> bool:
    # The comparison is also false for NaN and the infinities.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= limit


def _check_name(value: object, field: str) -> None:
    if not _is_short_text(value):
        raise ReportError(f"not a report: {field} must be a string of 1 to {MAX_NAME_LENGTH} characters")


def _check_time(value: object, field: str) -> None:
    if not _is_number(value, MAX_COUNTED):
        raise ReportError(f"not a report: {field} must be seconds since the epoch, for example 1763724817.25")
