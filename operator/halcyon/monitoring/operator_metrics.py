"""Metrics of the operator itself, in the order of the reference. Of its models: `models`."""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Metric, listed

BUILD: Final = Metric("halcyon_build_info", "gauge", "1; the version of the operator.", ("version",))
LEADING: Final = Metric(
    "halcyon_leading", "gauge", "1 while this replica leads: only it writes, and only it tells models' metrics."
)
MODELS: Final = Metric("halcyon_model_deployments", "gauge", "ModelDeployments in the cache.")
QUEUE_READY: Final = Metric(
    "halcyon_queue_ready", "gauge", "ModelDeployments that are ready to be reconciled and wait for a worker."
)
QUEUE_WAITING: Final = Metric(
    "halcyon_queue_waiting", "gauge", "ModelDeployments that wait for the time of their next reconcile."
)
RECONCILES: Final = Metric(
    "halcyon_reconciles_total",
    "counter",
    "Reconciles by result: done, again (it is to be looked at again soon) or error (it is tried again).",
    ("result",),
    (("done",), ("again",), ("error",)),
)
RECONCILE: Final = Metric("halcyon_reconcile_seconds", "histogram", "Time of a reconcile.")
DECISION: Final = Metric("halcyon_decision_seconds", "histogram", "Time of a decision, its reading included.")
DECISION_AGE: Final = Metric(
    "halcyon_decision_age_seconds", "histogram", "Model-seconds by the age of the decision in force (not decisions)."
)
POD_START: Final = Metric(
    "halcyon_pod_start_seconds",
    "histogram",
    "Time of server pods from their node to their readiness, of those that became ready under this process.",
)
API_WRITES: Final = Metric(
    "halcyon_api_writes_total", "counter", "Writes to the API server, those of Lease and reviews left out."
)
OBJECTS_WRITTEN: Final = Metric("halcyon_objects_written_total", "counter", "Child objects that were written.")
OBJECTS_SKIPPED: Final = Metric(
    "halcyon_objects_skipped_total",
    "counter",
    "Child objects that were as they should be, so that no write was needed.",
)
STATUSES_WRITTEN: Final = Metric(
    "halcyon_statuses_written_total", "counter", "Statuses of ModelDeployments that were written."
)
STREAMS: Final = Metric("halcyon_collector_streams", "gauge", "Streams of agents that are open now.")
RECORDS: Final = Metric(
    "halcyon_collector_records_total",
    "counter",
    "Records from agents, by what became of them: accepted, late, garbage, foreign or flood.",
    ("result",),
    (("accepted",), ("late",), ("garbage",), ("foreign",), ("flood",)),
)
ABSURD_VALUES: Final = Metric(
    "halcyon_collector_absurd_values_total",
    "counter",
    "Values that can't be true (negative, NaN, out of range) and count as unknown.",
)
LOGINS: Final = Metric(
    "halcyon_collector_logins_total",
    "counter",
    "Streams asked for, by what became of them: accepted, refused, foreign, crowded or unknown.",
    ("result",),
    (("accepted",), ("refused",), ("foreign",), ("crowded",), ("unknown",)),
)
VALUES_ASKED: Final = Metric(
    "halcyon_metricsapi_requests_total",
    "counter",
    "Questions for a value, by metric and HTTP status; 404 is a value that is missing.",
    ("metric", "code"),
    (("desiredReplicas", "200"), ("queueDepth", "200"), ("gpuUtilization", "200")),
)
CONNECTIONS_CLOSED: Final = Metric(
    "halcyon_connections_closed_total",
    "counter",
    "Connections that the operator closed, by port and reason: source or all (too many whose caller isn't known, from one address or in "
    "all), replaced (closed for a newer one) or late (no whole request, or an answer that wasn't taken, in time).",
    ("port", "reason"),
    tuple(
        (port, reason) for port in ("http", "https", "dashboard") for reason in ("source", "all", "replaced", "late")
    ),
)
PROMETHEUS_REQUESTS: Final = Metric(
    "halcyon_prometheus_requests_total",
    "counter",
    "Questions to the site's Prometheus, by kind (gpu, history) and result (answered, failed). There where it has one.",
    ("kind", "result"),
    (("gpu", "answered"), ("gpu", "failed"), ("history", "answered"), ("history", "failed")),
)
PROMETHEUS_PODS: Final = Metric(
    "halcyon_prometheus_pods",
    "gauge",
    "Pods whose GPU utilisation Prometheus' last answer told. Old values don't count in decisions, but do here. There where the "
    "site has one.",
)
RIGHTS_MISSING: Final = Metric(
    "halcyon_rights_missing",
    "gauge",
    "1 for each right that the API server says the operator lacks, until it answers otherwise.",
    ("group", "resource", "verb"),
)
OBJECTS_MALFORMED: Final = Metric(
    "halcyon_malformed_objects",
    "gauge",
    "Objects that aren't of the form that this operator reads, by kind: passed over as a whole or in part. The log names each once.",
    ("kind",),
)
PEAK_MEMORY: Final = Metric("halcyon_peak_memory_bytes", "gauge", "Largest resident size of this process so far.")
MEMORY_LIMIT: Final = Metric(
    "halcyon_memory_limit_bytes",
    "gauge",
    "Memory at which the kernel ends this process: the limit of its container. There only if it has one.",
)
CPU: Final = Metric("process_cpu_seconds_total", "counter", "CPU time of the process, user and system.")
MEMORY: Final = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the process.")

METRICS: Final = listed(globals())
