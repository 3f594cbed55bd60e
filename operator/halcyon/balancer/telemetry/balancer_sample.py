"""Part of an agent's report that describes the balancer and its requests in each pod.

The values come from HAProxy's statistics.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from halcyon.api.documents.observation_report import BalancerSample, ReportedHistogram, SlotLatency
from halcyon.triton.dead_backend import PodRequests

if TYPE_CHECKING:
    from halcyon.api.documents.observation_report import AgentReport
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats


def balancer_sample(reading: HaproxyStats | None, problem: str = "") -> BalancerSample | None:
    """Return the sample of the balancer; None if there are no statistics from HAProxy yet.

    `problem` describes the balancer's problems.
    """
    if reading is None:
        return None
    return BalancerSample(
        queued=reading.queued + reading.held,
        inflight=reading.inflight,
        requests=reading.demand,
        rejected=reading.rejected_demand,
        errors=reading.errors,
        held=reading.held,
        unavailable=reading.unavailable,
        problem=problem,
        latency=_latency(reading),
        clients=None
        if reading.clients is None
        else ReportedHistogram(reading.clients.bounds_ms, reading.clients.counts),
    )


def pod_requests(reading: HaproxyStats | None) -> dict[str, PodRequests]:
    """Return this balancer's requests in each pod, by address; empty if there are no statistics from HAProxy yet."""
    if reading is None:
        return {}
    return {
        server.address: PodRequests(server.sessions, reading.loads.responses.get(key, 0))
        for key, server in reading.servers.items()
        if server.admin != "maint"
    }


def users_report(report: AgentReport, part: float | None) -> AgentReport:
    """Return the report without the load of batch inference, which does not count as demand.

    `part` is the users' share of the requests in pods. Their share of the queue and of GPU utilisation is assumed to be
    the same, and the number of rows in their requests is unknown. If `part` is None, there is no batch inference, and
    the report is returned unchanged.
    """
    if part is None:
        return report
    pods = tuple(
        replace(
            pod,
            pending=None if pod.pending is None else round(pod.pending * part),
            gpu=None if pod.gpu is None else pod.gpu * part,
            engine_used=None if pod.engine_used is None else pod.engine_used * part,
            rows=None,
        )
        for pod in report.pods
    )
    return replace(report, pods=pods)


def _latency(reading: HaproxyStats) -> tuple[SlotLatency, ...]:
    """Return the latency histograms of both slots.

    Return an empty tuple if only one slot is in use, because the histograms are needed only to compare two revisions.
    """
    slots = {key.slot for key in reading.servers}
    if len(slots) < 2:
        return ()
    return tuple(
        SlotLatency(slot, latency.bounds_ms, latency.counts, latency.failed)
        for slot, latency in sorted(reading.latency.items())
        if slot in slots
    )
