"""Metrics of a balancer's agent, in the order of its `/metrics` page.

Their values are set by `halcyon.balancer.telemetry.metrics_page`.
"""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Kind, Metric

PREFIX: Final = "halcyon_agent_"


def _metric(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, kind, meaning, labels)


METRICS: Final = (
    _metric("requests_total", "counter", "Inference requests received."),
    _metric(
        "rejected_total",
        "counter",
        "Inference requests that were rejected, or timed out before a server had free capacity.",
    ),
    _metric(
        "client_retries_total",
        "counter",
        "Inference requests that clients sent again after a rejection, which are not new demand. gRPC clients report them; for HTTP, an "
        "estimate.",
    ),
    _metric("errors_total", "counter", "Inference requests that were lost between the balancer and a server."),
    _metric(
        "server_rejected_total",
        "counter",
        "Inference requests that a server refused itself with 503 or gRPC UNAVAILABLE: its own queue is full (maxQueueSize), they waited "
        "too long there, or the model is not loaded.",
    ),
    _metric(
        "retries_total",
        "counter",
        "Requests for which a second connection was tried, or that were sent a second time.",
    ),
    _metric(
        "broken_streams_total",
        "counter",
        "Streams that broke because their server went away or did not respond in time, or that the balancer ended for others.",
    ),
    _metric(
        "held_requests_total", "counter", "Requests that arrived while no server was ready, and were held for one."
    ),
    _metric("held", "gauge", "Requests that are held until the first server is ready."),
    _metric("queued", "gauge", "Requests that are queued until a server has free capacity, late ones included."),
    _metric("inflight", "gauge", "Requests that servers are processing."),
    _metric(
        "batch_requests_total",
        "counter",
        "Requests of batch inference received. No other metric of requests includes them, except for pod_inflight.",
    ),
    _metric(
        "batch_rejected_total",
        "counter",
        "Requests of batch inference that were rejected, or found no room in servers in time.",
    ),
    _metric(
        "batch_waiting", "gauge", "Requests of batch inference that wait until servers have room beside their users."
    ),
    _metric("batch_inflight", "gauge", "Requests of batch inference that servers are processing."),
    _metric(
        "client_requests_total",
        "counter",
        "Inference requests by the name of the client's API key, with those that were rejected. Only models with API keys have this "
        "metric, for at most 256 clients.",
        "client",
    ),
    _metric("client_received_bytes_total", "counter", "Bytes of requests by client, with headers.", "client"),
    _metric("client_sent_bytes_total", "counter", "Bytes of responses by client, with headers.", "client"),
    _metric(
        "response_duration_seconds",
        "histogram",
        "Time that servers took until their response headers, without the wait in the balancer.",
        "slot",
    ),
    _metric(
        "failed_responses_total",
        "counter",
        "Responses of servers that failed: HTTP 5xx, or gRPC UNKNOWN, UNIMPLEMENTED, INTERNAL or UNAVAILABLE. They include the errors that "
        "a model returns, which Triton counts as successes.",
        "slot",
    ),
    _metric(
        "request_duration_seconds",
        "histogram",
        "Time from a request's arrival until a server's response headers, with all waiting in the balancer.",
    ),
    _metric(
        "first_event_duration_seconds",
        "histogram",
        "Time from a stream's arrival until its first event, with all waiting in the balancer.",
    ),
    _metric("pod_inflight", "gauge", "Requests that a server pod is processing.", "server_pod", "slot"),
    _metric(
        "pod_state",
        "gauge",
        "1 for the current state of a server pod: starting, ready, draining, maintenance or unreachable.",
        "server_pod",
        "slot",
        "state",
    ),
    _metric("endpoints", "gauge", "Pods in the EndpointSlices."),
    _metric("endpoints_known", "gauge", "1 once the EndpointSlices have been read."),
    _metric("endpoints_unplaced", "gauge", "Ready pods for which HAProxy has no free server."),
    _metric("maintenance", "gauge", "Pods that the agent has taken out of rotation."),
    _metric("haproxy_up", "gauge", "1 while HAProxy responds to the agent."),
    _metric(
        "connections_used_ratio",
        "gauge",
        "Largest share of a client port's maximum number of connections that is in use, 0 to 1. From 0.75 on, new connections of the "
        "sources with the most are closed.",
    ),
    _metric("reloads_total", "counter", "Reloads of HAProxy by this agent."),
    _metric("plan_errors_total", "counter", "Plans that were rejected; the last valid one stays in use."),
    _metric("plan_info", "gauge", "1; the digest is that of the configuration that HAProxy runs.", "digest"),
    _metric(
        "degraded",
        "gauge",
        "1 while HAProxy does not do everything that the plan requires, or soon will not. The agent's log has the reason.",
    ),
    _metric(
        "certificate_expires_timestamp_seconds",
        "gauge",
        "Earliest expiry of the certificates in use from this key of a Secret, in seconds since the epoch.",
        "key",
    ),
    _metric("uplinks", "gauge", "Operator replicas that the agent sends its reports to."),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the agent, user and system."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of the agent."),
    Metric("process_open_fds", "gauge", "Open file descriptors of the agent."),
    Metric("process_start_time_seconds", "gauge", "Start time of the agent, in seconds since the epoch."),
)
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def named(name: str) -> Metric:
    """Return the agent metric with the given name, without the common prefix.

    Raises:
        KeyError: there is no metric with this name.
    """
    return _BY_NAME[PREFIX + name]
