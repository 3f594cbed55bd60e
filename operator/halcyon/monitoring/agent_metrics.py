"""Metrics of a balancer's agent, in the order of its page. `halcyon.balancer.telemetry.metrics_page` fills them."""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Kind, Metric

PREFIX: Final = "halcyon_agent_"


def _own(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, kind, meaning, labels)


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
    _own(
        "request_duration_seconds",
        "histogram",
        "Time from a request's arrival until the headers of its answer by a server: all waiting in the balancer is in it.",
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
    _own(
        "trouble",
        "gauge",
        "1 while HAProxy does not do all that it was asked to, or will soon not; the agent's log says what.",
    ),
    _own(
        "certificate_expires_timestamp_seconds",
        "gauge",
        "When the first of the certificates that are served from this key of a Secret expires, seconds since the epoch.",
        "key",
    ),
    _own("uplinks", "gauge", "Operator replicas that records go to."),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the agent, user and system."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of the agent."),
    Metric("process_open_fds", "gauge", "Open file descriptors of the agent."),
    Metric("process_start_time_seconds", "gauge", "When the agent started, seconds since the epoch."),
)
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def named(name: str) -> Metric:
    """By its name without the prefix of the agents.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[PREFIX + name]
