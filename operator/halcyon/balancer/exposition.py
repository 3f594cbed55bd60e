"""The agent's metrics: the list of them, and their page in Prometheus' text format. Pure.

`METRICS` is the whole list; docs/reference/agent-metrics.md is compared with it. What is not known has no sample: a counter that
fell to 0 for a moment would seem to have risen again. Labels are slots, which are two, states, which are five, and pods, of which
there are as many as the EndpointSlices tell now.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from halcyon.balancer.sensor import state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from halcyon.balancer.latency import Latency
    from halcyon.balancer.runtime_socket import Reading
    from halcyon.balancer.sensor import Sighting
    from halcyon.balancer.slots import Endpoint

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "halcyon_agent_"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Metric:
    """One family of the page."""

    name: str
    """With its unit, and `_total` where it is a counter."""
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    """Without `le` of a histogram."""


def _own(name: str, kind: Literal["counter", "gauge", "histogram"], meaning: str, *labels: str) -> Metric:
    return Metric(_PREFIX + name, kind, meaning, labels)


METRICS: Final = (
    _own("requests_total", "counter", "Inference requests that came."),
    _own(
        "refused_total",
        "counter",
        "Inference requests that were refused, or whose wait was over before a server had room.",
    ),
    _own("errors_total", "counter", "Inference requests that were lost on the way to a server or back."),
    _own(
        "repeated_total",
        "counter",
        "Requests for which a second connection was tried, or that were sent a second time.",
    ),
    _own("broken_streams_total", "counter", "Streams whose server went away in the middle of them."),
    _own("held_requests_total", "counter", "Requests that found no server and waited for the first one."),
    _own("held", "gauge", "Requests that wait for the first server now."),
    _own("queued", "gauge", "Requests that wait for room in a server now."),
    _own("inflight", "gauge", "Requests that servers work on now."),
    _own(
        "answer_duration_seconds",
        "histogram",
        "Time that servers took until the headers of their answers; the wait in the balancer is not in it.",
        "slot",
    ),
    _own("pod_inflight", "gauge", "Requests that a pod works on now.", "pod", "slot"),
    _own(
        "pod_state",
        "gauge",
        "1 for the state that a pod is in: starting, ready, draining, maintenance or unreachable.",
        "pod",
        "slot",
        "state",
    ),
    _own("endpoints", "gauge", "Pods that the EndpointSlices tell."),
    _own("endpoints_known", "gauge", "1 once the EndpointSlices have been read."),
    _own("endpoints_unplaced", "gauge", "Ready pods for which HAProxy has no server line."),
    _own("maintenance", "gauge", "Pods that the agent has taken out of service."),
    _own("haproxy_up", "gauge", "1 while HAProxy answers the agent."),
    _own("reloads_total", "counter", "Reloads of HAProxy by this agent."),
    _own("plan_errors_total", "counter", "Plans that were refused; the last good one stays in force."),
    _own("plan_info", "gauge", "1; digest is of the configuration that HAProxy runs.", "digest"),
    _own("trouble", "gauge", "1 while HAProxy does not do all that it was asked to; the agent's log says what."),
    _own("uplinks", "gauge", "Operator replicas that records go to."),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the agent, user and system."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of the agent."),
    Metric("process_open_fds", "gauge", "Open file descriptors of the agent."),
    Metric("process_start_time_seconds", "gauge", "When the agent started, seconds since the epoch."),
)


@dataclass(frozen=True)
class View:
    """What the agent knows at one moment."""

    reading: Reading | None
    """None where HAProxy does not answer."""
    endpoints: tuple[Endpoint, ...] | None
    sightings: Mapping[str, Sighting]
    maintenance: AbstractSet[str]
    unplaced: int
    reloads: int
    plan_errors: int
    in_trouble: bool
    uplinks: int
    process: Mapping[str, float]
    """Name of a `process_` metric -> value."""


def page(view: View) -> str:
    """The page, families in the order of `METRICS`."""
    samples = _samples(view)
    return "".join(_family(metric, samples.get(metric.name, ())) for metric in METRICS)


def process() -> dict[str, float]:
    """Figures of this process, from /proc."""
    with open("/proc/self/stat") as file:  # noqa: PTH123 - a small page, read in one call
        # The name may hold spaces and brackets; what follows the last one doesn't.
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


def _samples(view: View) -> dict[str, list[tuple[Labels, str, float]]]:
    """Samples by family: labels, what is added to the name, value."""
    reading = view.reading
    plain: dict[str, float] = {
        "endpoints": len(view.endpoints or ()),
        "endpoints_known": float(view.endpoints is not None),
        "endpoints_unplaced": view.unplaced,
        "maintenance": len(view.maintenance),
        "haproxy_up": float(reading is not None),
        "reloads_total": view.reloads,
        "plan_errors_total": view.plan_errors,
        "trouble": float(view.in_trouble),
        "uplinks": view.uplinks,
    }
    found: dict[str, list[tuple[Labels, str, float]]] = {}
    if reading is not None:
        plain |= {
            "requests_total": reading.requests,
            "refused_total": reading.refused,
            "errors_total": reading.errors,
            "repeated_total": reading.repeated,
            "broken_streams_total": reading.broken,
            "held_requests_total": reading.came,
            "held": reading.held,
            "queued": reading.queued,
            "inflight": reading.inflight,
        }
        found["halcyon_agent_answer_duration_seconds"] = [
            sample for slot, latency in sorted(reading.latency.items()) for sample in _histogram(slot, latency)
        ]
        found["halcyon_agent_pod_inflight"] = list(_inflight(reading, view.endpoints or ()))
        found["halcyon_agent_plan_info"] = [((("digest", reading.config),), "", 1)]
    found["halcyon_agent_pod_state"] = [
        ((("pod", e.pod), ("slot", e.slot), ("state", state(e, view.sightings.get(e.pod), view.maintenance))), "", 1)
        for e in view.endpoints or ()
    ]
    found |= {_PREFIX + name: [((), "", value)] for name, value in plain.items()}
    return found | {name: [((), "", value)] for name, value in view.process.items()}


def _histogram(slot: str, latency: Latency) -> Iterator[tuple[Labels, str, float]]:
    labels = (("slot", slot),)
    for bound_s, count in latency.buckets:
        yield (*labels, ("le", f"{bound_s:g}")), "_bucket", count
    yield (*labels, ("le", "+Inf")), "_bucket", latency.answered
    yield labels, "_sum", latency.total_ms / 1000
    yield labels, "_count", latency.answered


def _inflight(reading: Reading, endpoints: Iterable[Endpoint]) -> Iterator[tuple[Labels, str, float]]:
    at = {(key.slot, line.address): line.sessions for key, line in reading.lines.items() if line.admin != "maint"}
    for endpoint in endpoints:
        # A pod without a line gets nothing from this balancer.
        yield (("pod", endpoint.pod), ("slot", endpoint.slot)), "", at.get((endpoint.slot, endpoint.address), 0)


def _family(metric: Metric, samples: Sequence[tuple[Labels, str, float]]) -> str:
    if not samples:
        return ""
    lines = [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, end, value in samples:
        told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        lines.append(f"{metric.name}{end}{f'{{{told}}}' if told else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
