"""Metrics of each ModelDeployment, which the leader exports. The series of a model end when it is deleted.

Each metric has the labels in `OF`, and any others in its definition. If a value is unknown, there is no sample.
`halcyon.control.reporting.model_metrics` sets the values.
"""

from __future__ import annotations

from typing import Final, get_args

from halcyon.api.status import FailureCause
from halcyon.monitoring.metric import Kind, Metric, listed

OF: Final = ("namespace", "model_deployment")
BY: Final = ", ".join(OF)
"""Labels in `OF` as a list for PromQL, for example in `sum by (...)`."""
PREFIX: Final = "halcyon_model_"


def _metric(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, kind, meaning, (*OF, *labels))


CONDITION: Final = _metric(
    "condition",
    "gauge",
    "1 for each condition, with its current status (True, False, Unknown) and reason.",
    *("type", "status", "reason"),
)
REPLICAS: Final = _metric("replicas", "gauge", "Server pods that exist.")
READY: Final = _metric("replicas_ready", "gauge", "Server pods that are ready.")
UNSCHEDULABLE: Final = _metric(
    "replicas_unschedulable", "gauge", "Server pods that the scheduler can't place on any node."
)
FAILED: Final = _metric(
    "replicas_failed",
    "gauge",
    f"Server pods that can't start or have failed, by reason: {', '.join(get_args(FailureCause))}. Present only for "
    "reasons that a pod has.",
    "reason",
)
SPEC_REPLICAS: Final = _metric(
    "spec_replicas", "gauge", "Current number of replicas: spec.replicas, within the limits of spec.scaling."
)
DESIRED: Final = _metric(
    "replicas_desired",
    "gauge",
    "Desired replicas of the last decision, or of the HPA if it decides. Present only if spec.scaling is set and a decision was made.",
)
MIN: Final = _metric("replicas_min", "gauge", "Minimum: spec.scaling.minReplicas.")
MAX: Final = _metric("replicas_max", "gauge", "Maximum: spec.scaling.maxReplicas.")
PART: Final = _metric(
    "part_replicas",
    "gauge",
    "Replicas that a part of the last decision requires (rate, trend, season, spike, backlog, queueDepth, concurrency, metric, gpuUtilization, batch). The largest "
    "value decides.",
    "part",
)
LIMITED: Final = _metric(
    "limited",
    "gauge",
    "1 for each limit that changed or kept the desired replicas in spite of the signals: min, max, hold, veto, answers, "
    "shared, unknown, learning, idle, stabilisation, pace, off, quota, budget or site.",
    "limit",
)
CAPACITY: Final = _metric(
    "replica_capacity_requests_per_second",
    "gauge",
    "Requests per second that a full replica answers, as the planner assumes. Source: Bench, WarmUp, BatchStatistics, TimeInPods, Answers or EngineMetrics. "
    "Missing if it isn't known, or with the Rules policy.",
    "source",
)
SUSTAINED: Final = _metric(
    "replica_sustained_requests_per_second",
    "gauge",
    "Requests per second that one replica answers within spec.scaling.targets.latency, or at the planned utilisation without one, as the "
    "planner assumes. Missing if it isn't known, or with the Rules policy.",
)
SERVICE_TIME: Final = _metric(
    "service_time_seconds",
    "gauge",
    "Time of a batch, as the planner assumes: part constant, and for each row part row. Missing if it isn't known.",
    "part",
)
CHANGES: Final = _metric(
    "desired_changes_total",
    "counter",
    "Changes of the desired replicas since this replica became the leader, by direction: up or down.",
    "direction",
)
REQUEST_RATE: Final = _metric(
    "requests_per_second",
    "gauge",
    "Arrival rate that the planner uses, including rejected requests. After the load falls, it follows within a minute.",
)
QUEUE: Final = _metric(
    "queue_requests", "gauge", "Requests that wait in balancers and ready servers; a mean over about 15 s."
)
QUEUE_TARGET: Final = _metric(
    "queue_target_requests",
    "gauge",
    "Target of queued requests per replica: spec.scaling.targets.queueDepth, or the default of the Rules policy.",
)
LATENCY_TARGET: Final = _metric(
    "latency_target_seconds",
    "gauge",
    "Latency objective: spec.scaling.targets.latency. Present only if it is set, and with the Planner policy.",
)
GPUS: Final = _metric("gpus", "gauge", "GPUs of the server pods that have a node.")
GPU_UTILIZATION: Final = _metric(
    "gpu_utilization_ratio", "gauge", "Mean GPU utilisation of the ready server pods over about 15 s, 0 to 1."
)
GPU_TARGET: Final = _metric(
    "gpu_target_ratio",
    "gauge",
    "Target of GPU utilisation, 0 to 1: spec.scaling.targets.gpuUtilization, or the default of the Rules policy.",
)
GPU_SECONDS: Final = _metric(
    "gpu_seconds_total",
    "counter",
    "GPU-seconds since this replica started to count, by state: starting (scheduled pods that aren't ready), busy and idle (ready pods, "
    "by GPU utilisation), unknown (ready pods without a known utilisation).",
    "state",
)
INFERENCES: Final = _metric(
    "gpu_inferences_total", "counter", "Inferences (batch items) computed on GPUs since this replica started to count."
)
COST: Final = _metric(
    "cost_per_hour",
    "gauge",
    "Cost of the GPUs that the model holds, in the currency of the chart's cost.currency. Present only if the price is known.",
)
SIGNAL_TIME: Final = _metric(
    "signal_timestamp_seconds",
    "gauge",
    "Time at which the value of a signal (requestRate, queueDepth, concurrency, metric, gpuUtilization) in the last decision was measured.",
    *("signal", "source"),
)
SIGNAL_MISSING: Final = _metric(
    "signal_missing",
    "gauge",
    "1 while the last decision had no usable value of the signal, else 0. Without a ready pod there is no GPU to measure: 0.",
    "signal",
)
START: Final = _metric(
    "start_seconds", "gauge", "Time from the scheduling of the server pod that became ready last until it was ready."
)
START_TIME: Final = _metric(
    "start_timestamp_seconds", "gauge", "Time at which the server pod that became ready last did so."
)
ROLLOUT_START: Final = _metric(
    "rollout_start_timestamp_seconds",
    "gauge",
    "Time at which the rollout in progress began. Present only during a rollout.",
)
BATCH_CONDITION: Final = _metric(
    "batch_condition",
    "gauge",
    "1 for each condition of each BatchInference of the model, with its current status (True, False) and reason. Present only "
    "if there are BatchInferences.",
    *("batch", "type", "status", "reason"),
)

METRICS: Final = listed(globals())
