"""Page with the agent's metrics in the Prometheus text format. Pure.

`halcyon.monitoring.agent_metrics` lists the metrics, and docs/reference/agent-metrics.md is checked against that list.
An unknown value is left out instead of being exported as 0, which would look like a counter reset. The number of series
is limited: labels are the two slots, five pod states, the pods in the current EndpointSlices, and at most 256 clients
with API keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halcyon.monitoring.agent_metrics import METRICS, PREFIX
from halcyon.monitoring.metric import family
from halcyon.triton.pod_sampler import state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.config.latency_buckets import Latency
    from halcyon.balancer.runtime.haproxy_stats import HaproxyStats
    from halcyon.monitoring.metric import Labels, Sample
    from halcyon.triton.client import Endpoint
    from halcyon.triton.pod_sampler import ScrapedPod

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class PageInput:
    """State of the agent from which the metrics page is created."""

    reading: HaproxyStats | None
    """HAProxy's statistics; None if HAProxy does not respond."""
    endpoints: tuple[Endpoint, ...] | None
    samples: Mapping[str, ScrapedPod]
    maintenance: AbstractSet[str]
    unplaced: int
    reloads: int
    plan_errors: int
    has_problem: bool
    expires: Mapping[str, float]
    """Expiry time of each certificate in use, by key of its Secret, in seconds since the epoch."""
    streams: int
    process: Mapping[str, float]
    """Metrics of the agent's process, by name. The names begin with `process_`."""


def page(view: PageInput) -> str:
    """Return the text of the metrics page, with the metric families in the order of `METRICS`."""
    samples = _samples(view)
    return "".join(family(metric, samples.get(metric.name, ())) for metric in METRICS)


def process() -> dict[str, float]:
    """Return CPU time, memory and file descriptors of this process, read from /proc, by metric name."""
    with open("/proc/self/stat") as file:  # noqa: PTH123 - a small page, read in one call
        # The process name, in brackets, may contain spaces and brackets, so parse only the text after the last bracket.
        stat = file.read().rpartition(")")[2].split()
    with open("/proc/stat") as file:  # noqa: PTH123 - same
        booted = next(float(line.split()[1]) for line in file if line.startswith("btime "))
    ticks = os.sysconf("SC_CLK_TCK")
    return {
        "process_cpu_seconds_total": (int(stat[11]) + int(stat[12])) / ticks,
        "process_resident_memory_bytes": float(int(stat[21]) * os.sysconf("SC_PAGE_SIZE")),
        "process_open_fds": float(len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - names suffice
        "process_start_time_seconds": booted + int(stat[19]) / ticks,
    }


def _samples(view: PageInput) -> dict[str, list[Sample]]:
    """Return the samples of each metric family. A sample has labels, a name suffix and a value."""
    reading = view.reading
    plain: dict[str, float] = {
        "endpoints": len(view.endpoints or ()),
        "endpoints_known": float(view.endpoints is not None),
        "endpoints_unplaced": view.unplaced,
        "maintenance": len(view.maintenance),
        "haproxy_up": float(reading is not None),
        "reloads_total": view.reloads,
        "plan_errors_total": view.plan_errors,
        "degraded": float(view.has_problem),
        "uplinks": view.streams,
    }
    families: dict[str, list[Sample]] = {}
    if reading is not None:
        plain |= {
            "requests_total": reading.requests,
            "rejected_total": reading.rejected,
            "client_retries_total": reading.client_retries,
            "errors_total": reading.errors,
            "server_rejected_total": reading.unavailable,
            "retries_total": reading.retried,
            "broken_streams_total": reading.broken,
            "held_requests_total": reading.held_total,
            "held": reading.held,
            "queued": reading.queued,
            "inflight": reading.inflight,
            "connections_used_ratio": round(reading.connections_used, 4),
        }
        if (lower := reading.lower) is not None:
            plain |= {
                "batch_requests_total": lower.requests,
                "batch_rejected_total": lower.rejected,
                "batch_waiting": lower.waiting,
                "batch_inflight": lower.sent,
            }
        families["halcyon_agent_response_duration_seconds"] = [
            sample
            for slot, latency in sorted(reading.latency.items())
            for sample in _histogram((("slot", slot),), latency)
        ]
        families["halcyon_agent_failed_responses_total"] = [
            ((("slot", slot),), "", latency.failed) for slot, latency in sorted(reading.latency.items())
        ]
        if reading.clients is not None:
            families["halcyon_agent_request_duration_seconds"] = list(_histogram((), reading.clients))
        if reading.first_events is not None:
            families["halcyon_agent_first_event_duration_seconds"] = list(_histogram((), reading.first_events))
        for name in ("requests", "received_bytes", "sent_bytes"):
            families[f"{PREFIX}client_{name}_total"] = [
                ((("client", client),), "", getattr(usage, name)) for client, usage in reading.usage.items()
            ]
        families["halcyon_agent_pod_inflight"] = list(_inflight(reading, view.endpoints or ()))
        families["halcyon_agent_plan_info"] = [((("digest", reading.config),), "", 1)]
    families["halcyon_agent_pod_state"] = [
        (
            (("server_pod", e.pod), ("slot", e.slot), ("state", state(e, view.samples.get(e.pod), view.maintenance))),
            "",
            1,
        )
        for e in view.endpoints or ()
    ]
    families["halcyon_agent_certificate_expires_timestamp_seconds"] = [
        ((("key", key),), "", at) for key, at in sorted(view.expires.items())
    ]
    families |= {PREFIX + name: [((), "", value)] for name, value in plain.items()}
    return families | {name: [((), "", value)] for name, value in view.process.items()}


def _histogram(labels: Labels, latency: Latency) -> Iterator[Sample]:
    for bound_s, count in latency.buckets:
        yield (*labels, ("le", f"{bound_s:g}")), "_bucket", count
    yield (*labels, ("le", "+Inf")), "_bucket", latency.answered
    yield labels, "_sum", latency.total_ms / 1000
    yield labels, "_count", latency.answered


def _inflight(reading: HaproxyStats, endpoints: Iterable[Endpoint]) -> Iterator[Sample]:
    at = {
        (key.slot, server.address): server.sessions
        for key, server in reading.servers.items()
        if server.admin != "maint"
    }
    for endpoint in endpoints:
        # A pod without an HAProxy server gets no requests from this balancer.
        yield (("server_pod", endpoint.pod), ("slot", endpoint.slot)), "", at.get((endpoint.slot, endpoint.address), 0)
