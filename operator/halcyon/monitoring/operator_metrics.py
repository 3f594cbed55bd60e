"""Metrics of the operator itself, in the order of the reference page. Out of scope: metrics of models (`per_model_metrics`)."""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Metric, listed

BUILD: Final = Metric("halcyon_build_info", "gauge", "1; the label is the version of the operator.", ("version",))
LEADER: Final = Metric(
    "halcyon_leader",
    "gauge",
    "1 while this replica is the leader. Only the leader writes objects and exports per-model metrics.",
)
MODELS: Final = Metric("halcyon_model_deployments", "gauge", "ModelDeployments in the cache.")
QUEUE_READY: Final = Metric(
    "halcyon_queue_ready", "gauge", "ModelDeployments in the work queue that wait for a worker."
)
QUEUE_WAITING: Final = Metric(
    "halcyon_queue_waiting", "gauge", "ModelDeployments whose next reconcile is scheduled for later."
)
RECONCILES: Final = Metric(
    "halcyon_reconciles_total",
    "counter",
    "Reconciles by result: done, requeue (another one follows soon), conflict (an object had changed since it was read; it is retried "
    "at once) or error (it is retried). Further conflicts of a model in a row are errors.",
    ("result",),
    (("done",), ("requeue",), ("conflict",), ("error",)),
)
RECONCILE: Final = Metric("halcyon_reconcile_seconds", "histogram", "Duration of a reconcile.")
DECISION: Final = Metric(
    "halcyon_decision_seconds", "histogram", "Duration of a decision, including the collection of its inputs."
)
DECISION_AGE: Final = Metric(
    "halcyon_decision_age_seconds",
    "histogram",
    "Age of the scaling decision in force, or time since the first attempt if there is none. Each second of each model counts as one observation.",
)
POD_START: Final = Metric(
    "halcyon_pod_start_seconds",
    "histogram",
    "Time from the scheduling of a server pod until it was ready, for pods that became ready since this process started.",
)
API_WRITES: Final = Metric(
    "halcyon_api_writes_total", "counter", "Writes to the API server, without those of the Lease and of reviews."
)
OBJECTS_WRITTEN: Final = Metric("halcyon_objects_written_total", "counter", "Child objects that were written.")
OBJECTS_SKIPPED: Final = Metric(
    "halcyon_objects_skipped_total", "counter", "Child objects that were up to date and needed no write."
)
STATUSES_WRITTEN: Final = Metric(
    "halcyon_statuses_written_total", "counter", "Statuses of ModelDeployments that were written."
)
STREAMS: Final = Metric("halcyon_collector_streams", "gauge", "Open streams from agents.")
REPORTS: Final = Metric(
    "halcyon_collector_reports_total",
    "counter",
    "Reports from agents by result: accepted, late (older than one received before), malformed, forbidden (for a model that the "
    "agent's token doesn't cover, or another agent) or rate_limited.",
    ("result",),
    (("accepted",), ("late",), ("malformed",), ("forbidden",), ("rate_limited",)),
)
IMPLAUSIBLE_VALUES: Final = Metric(
    "halcyon_collector_implausible_values_total",
    "counter",
    "Reported values that can't be true (negative, NaN, out of range) and are treated as unknown.",
)
STREAM_REQUESTS: Final = Metric(
    "halcyon_collector_stream_requests_total",
    "counter",
    "Requests of agents to open a stream, by result: accepted, unauthenticated (no valid token), forbidden (the account is no "
    "balancer's, the token is bound to no pod, or there is no such model), over_limit (the model has too many streams), overloaded "
    "(the operator starts, or too many agents connect) or unreviewed (the token couldn't be checked).",
    ("result",),
    (("accepted",), ("unauthenticated",), ("forbidden",), ("over_limit",), ("overloaded",), ("unreviewed",)),
)
METRIC_REQUESTS: Final = Metric(
    "halcyon_metricsapi_requests_total",
    "counter",
    "Requests for a metric value, by metric and HTTP status; 404 means that the value is missing.",
    ("metric", "code"),
    (
        ("desiredReplicas", "200"),
        ("queueDepth", "200"),
        ("gpuUtilization", "200"),
        ("concurrency", "200"),
        ("metric", "200"),
    ),
)
CONNECTIONS_CLOSED: Final = Metric(
    "halcyon_connections_closed_total",
    "counter",
    "Connections that the operator closed, by port and reason: source or all (too many unauthenticated ones, from one address or in "
    "total), replaced (closed for a newer one) or late (the request was incomplete, or the response not read, in time).",
    ("port", "reason"),
    tuple(
        (port, reason) for port in ("http", "https", "dashboard") for reason in ("source", "all", "replaced", "late")
    ),
)
PROMETHEUS_REQUESTS: Final = Metric(
    "halcyon_prometheus_requests_total",
    "counter",
    "Queries to the site's Prometheus, by kind (gpu, history, metric, canary, dashboard) and result (answered, failed). Present only if one is configured.",
    ("kind", "result"),
    tuple(
        (kind, result)
        for kind in ("gpu", "history", "metric", "canary", "dashboard")
        for result in ("answered", "failed")
    ),
)
PROMETHEUS_PODS: Final = Metric(
    "halcyon_prometheus_pods",
    "gauge",
    "Pods with a GPU utilisation in the last response of the site's Prometheus. Old values are included, although decisions ignore "
    "them. Present only if a Prometheus is configured.",
)
PERMISSIONS_MISSING: Final = Metric(
    "halcyon_permissions_missing",
    "gauge",
    "1 for each permission that the API server has denied to the operator, until a request with it succeeds.",
    ("group", "resource", "verb"),
)
OBJECTS_MALFORMED: Final = Metric(
    "halcyon_malformed_objects",
    "gauge",
    "Objects of an unexpected form, by kind. They are ignored, as a whole or in part. The log names each of them once.",
    ("kind",),
)
PEAK_MEMORY: Final = Metric("halcyon_peak_memory_bytes", "gauge", "Largest resident memory of this process so far.")
MEMORY_LIMIT: Final = Metric(
    "halcyon_memory_limit_bytes",
    "gauge",
    "Memory limit of the container, above which the kernel kills the process. Present only if there is a limit.",
)
CPU: Final = Metric("process_cpu_seconds_total", "counter", "CPU time of the process, user and system.")
MEMORY: Final = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the process.")

METRICS: Final = listed(globals())
