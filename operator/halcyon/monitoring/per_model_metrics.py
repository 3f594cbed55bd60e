"""Metrics of each ModelDeployment, told by the replica of the operator that leads. Their series go with the model.

Each has the labels of `OF`; the list names the others. What isn't known has no sample. `halcyon.control.reporting.model_metrics` fills them.
"""

from __future__ import annotations

from typing import Final

from halcyon.monitoring.metric import Kind, Metric, listed

OF: Final = ("namespace", "model_deployment")
BY: Final = ", ".join(OF)
"""In PromQL."""
PREFIX: Final = "halcyon_model_"


def _of(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, kind, meaning, (*OF, *labels))


CONDITION: Final = _of(
    "condition",
    "gauge",
    "1 for each condition, with the status (True, False, Unknown) and the reason that it has now.",
    *("type", "status", "reason"),
)
REPLICAS: Final = _of("replicas", "gauge", "Server pods that exist.")
READY: Final = _of("replicas_ready", "gauge", "Server pods that are ready.")
UNSCHEDULABLE: Final = _of("replicas_unschedulable", "gauge", "Server pods that the scheduler finds no node for.")
WANTED: Final = _of("replicas_wanted", "gauge", "The count in force: spec.replicas, within the limits of spec.scaling.")
DESIRED: Final = _of(
    "replicas_desired",
    "gauge",
    "The count that the last decision asks for. There only where scaling is set, and something was decided.",
)
MIN: Final = _of("replicas_min", "gauge", "spec.scaling.minReplicas.")
MAX: Final = _of("replicas_max", "gauge", "spec.scaling.maxReplicas.")
PART: Final = _of(
    "part_replicas",
    "gauge",
    "The count that a part of the last decision asks for (rate, trend, season, spike, backlog, queueDepth, gpuUtilization); the "
    "largest counts.",
    "part",
)
LIMITED: Final = _of(
    "limited",
    "gauge",
    "1 for each thing that changed or kept the count after the signals had spoken: min, max, hold, veto, unknown, learning, idle, "
    "stabilisation, pace, off, quota or budget.",
    "limit",
)
CHANGES: Final = _of(
    "desired_changes_total",
    "counter",
    "Changes of the count asked for since this replica has led, by direction: up or down.",
    "direction",
)
REQUEST_RATE: Final = _of(
    "requests_per_second", "gauge", "Requests that come, those that were refused included, as the planner has it."
)
QUEUE: Final = _of("queue_requests", "gauge", "Requests that wait, of all replicas together; a mean of about 15 s.")
QUEUE_TARGET: Final = _of(
    "queue_target_requests",
    "gauge",
    "Target of waiting requests for each replica: spec.scaling.targets.queueDepth or its default.",
)
GPUS: Final = _of("gpus", "gauge", "GPUs that the server pods that exist ask for.")
GPU_UTILIZATION: Final = _of("gpu_utilization_ratio", "gauge", "Mean GPU utilisation of the ready server pods, 0 to 1.")
GPU_TARGET: Final = _of(
    "gpu_target_ratio",
    "gauge",
    "Target of GPU utilisation, 0 to 1: spec.scaling.targets.gpuUtilization or its default.",
)
GPU_SECONDS: Final = _of(
    "gpu_seconds_total",
    "counter",
    "GPU-seconds since this replica counts, by state: starting (of pods with a node that aren't ready), busy and idle (of ready ones, by GPU "
    "utilisation), unknown (of ready ones while nobody tells it).",
    "state",
)
INFERENCES: Final = _of(
    "gpu_inferences_total", "counter", "Inferences (rows) computed on GPUs since this replica counts."
)
COST: Final = _of(
    "cost_per_hour",
    "gauge",
    "What the GPUs that the model holds cost, in the currency of the chart's cost.currency. There only where the price is known.",
)
SIGNAL_TIME: Final = _of(
    "signal_timestamp_seconds",
    "gauge",
    "When the value of a signal (requestRate, queueDepth, gpuUtilization) that the last decision used was seen.",
    *("signal", "source"),
)
SIGNAL_MISSING: Final = _of(
    "signal_missing", "gauge", "1 while the signal has no value that the last decision could use, else 0.", "signal"
)
START: Final = _of(
    "start_seconds", "gauge", "Time of the server pod that became ready last, from its node to its readiness."
)
START_TIME: Final = _of("start_timestamp_seconds", "gauge", "When that pod became ready.")

METRICS: Final = listed(globals())
