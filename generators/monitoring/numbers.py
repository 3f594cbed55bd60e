"""Definitions of all numbers that users see. `numbers_page` generates docs/reference/numbers.md from them.

Each number has a single definition, wherever it is shown. A test checks that every column, fact and metric of a model
is in this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Number:
    """Number that users see, with its definition."""

    name: str
    definition: str
    """Definition of the number: the quantity, the pods, and the period of time."""
    source: str
    """Counters from which the number is computed, so that users can check it."""
    places: tuple[str, ...]
    """Places in which the number is shown."""


@dataclass(frozen=True)
class Group:
    """Numbers about one subject."""

    title: str
    numbers: tuple[Number, ...]


GROUPS: Final = (
    Group(
        "Requests",
        (
            Number(
                "requests per second",
                "Inference requests of both protocols that reach the balancers, including rejected ones; growth over 15 s. A rejected request "
                "that its client repeats counts once; `halcyon_agent_requests_total` has each attempt. Without balancers: requests that ended "
                "in Triton, plus the growth of its queue.",
                "`halcyon_agent_requests_total` less `halcyon_agent_client_retries_total`, or `nv_inference_request_success`, "
                "`nv_inference_request_failure` and `nv_inference_pending_request_count`",
                (
                    "fleet: Requests/s, 10 min, Requests/s of all models",
                    "model: Requests/s",
                    "`halcyon_agent_requests_total`",
                    "Grafana Fleet, Model: Requests",
                ),
            ),
            Number(
                "planned request rate",
                "Arrival rate for which the planner orders replicas: a mean over a time that it chooses by the noise, up to 15 minutes. It "
                "follows a step up at once, and a step down late.",
                "the planner's memory of `halcyon_agent_requests_total`",
                (
                    "`status.scaling.signals[requestRate]`",
                    "`explain`",
                    "`halcyon_model_requests_per_second`",
                    "Grafana Scaling: Planned request rate",
                ),
            ),
            Number(
                "capacity of a replica",
                "Requests per second that a full replica answers. By a bench before traffic; by Triton's batch times, as long as answers don't contradict them; else "
                "requests in execution divided by their time in a pod, or the answers of full pods.",
                "`batch_stats`; `halcyon_agent_requests_total`, `halcyon_agent_inflight` and `halcyon_agent_queued`",
                (
                    "`status.capacity`",
                    "`explain`: replica",
                    "model: One replica",
                    "`halcyon_model_replica_capacity_requests_per_second`",
                ),
            ),
            Number(
                "sustained capacity of a replica",
                "Requests per second that one replica answers within `spec.scaling.targets.latency`, for Poisson arrivals; without that "
                "target, at 80 % utilisation.",
                "the capacity of a replica",
                (
                    "`status.capacity.sustainedRequestsPerSecond`",
                    "`kubectl get -o wide`, `get -o wide`: CAPACITY",
                    "`explain`: replica",
                    "model: One replica",
                    "`halcyon_model_replica_sustained_requests_per_second`",
                ),
            ),
            Number(
                "time of a batch",
                "The line through the times of batches by their rows: a constant, and a time for each row.",
                "`batch_stats`, or a measurement by `halcyon bench --teach`, until 100 batches of traffic outweigh it",
                (
                    "`status.capacity.lines`",
                    "`explain`: replica",
                    "model: A batch takes",
                    "`halcyon_model_service_time_seconds`",
                ),
            ),
            Number(
                "in progress",
                "Requests that balancers have sent to servers and that are not answered yet.",
                "HAProxy's sessions of each server",
                (
                    "`halcyon_agent_inflight`",
                    "`halcyon_agent_pod_inflight`",
                    "Grafana Model: Requests in progress, by pod",
                ),
            ),
            Number(
                "retried",
                "Requests that a balancer sent to a second server.",
                "HAProxy",
                ("`halcyon_agent_retries_total`", "Grafana Model: Requests"),
            ),
        ),
    ),
    Group(
        "Waiting",
        (
            Number(
                "waiting",
                "Requests that wait in balancers for a server's free capacity (late ones included) or for the first server, plus those in Triton's "
                "queue of the ready pods; mean over 15 s. Releases of Triton without a gauge: the time that requests waited, by Little's law, over at "
                "least three times at which some of them left the queue. The growth of these times counts the requests that wait longer.",
                "`halcyon_agent_queued`, `halcyon_agent_held`, `nv_inference_pending_request_count` (or `nv_inference_queue_duration_us`)",
                (
                    "fleet: Queue",
                    "model: Queue",
                    "`status.summary.queue`",
                    "`get`, `top`: QUEUE",
                    "`halcyon_model_queue_requests`",
                    "Grafana Fleet: Waiting",
                    "Grafana Model: Queued",
                ),
            ),
            Number(
                "queue target",
                "`targets.queueDepth` per ready replica, times the ready replicas, at least 1.",
                "the spec",
                (
                    "fleet, model: Queue, of",
                    "`status.summary.queue`",
                    "`halcyon_model_queue_target_requests` (per replica)",
                ),
            ),
            Number(
                "signal queueDepth",
                "What is compared with the target. Planner: waiting. Rules and HPA: waiting, plus rejected requests per second, plus the target for "
                "each ready pod that does not report its queue, where that prevents a scale-down.",
                "as waiting and rejected",
                ("`status.scaling.signals[queueDepth]`", "`explain`", "external metric queueDepth"),
            ),
        ),
    ),
    Group(
        "Errors",
        (
            Number(
                "rejected",
                "Requests per second that balancers turn away (429, 503, gRPC 8, 14): the queue is full, the answer would be late, no server in "
                "time. A rejection counts when it happens, which may be up to the queue timeout after the request. A request that its client "
                "repeats counts once, as in the requests per second; `halcyon_agent_rejected_total` has each rejection.",
                "`halcyon_agent_rejected_total`, `halcyon_agent_client_retries_total`",
                (
                    "model: Errors, rejected",
                    "`halcyon_agent_rejected_total`",
                    "Grafana Fleet: Rejected or lost",
                    "Grafana Model: Requests",
                ),
            ),
            Number(
                "lost",
                "Requests per second that fail between balancer and server: 502, 504, or no connection.",
                "`halcyon_agent_errors_total`",
                (
                    "model: Errors, lost",
                    "`halcyon_agent_errors_total`",
                    "Grafana Fleet: Rejected or lost",
                    "Grafana Model: Requests",
                ),
            ),
            Number(
                "refused by servers",
                "Requests that a server answers with 503 or gRPC UNAVAILABLE. Triton does so above `maxQueueSize` and counts such requests nowhere.",
                "HAProxy",
                ("`halcyon_agent_server_rejected_total`", "Grafana Model: Requests"),
            ),
            Number(
                "failed",
                "Requests per second that Triton answers with an error, without those that their clients canceled. If balancers count more refusals "
                "by servers, these, because Triton does not count requests above `maxQueueSize`. Of several models in a pod, those of the served one; in "
                "Grafana, those of the one with the largest share.",
                '`nv_inference_request_failure{reason!="CANCELED"}`, `halcyon_agent_server_rejected_total`',
                (
                    "model: Errors, failed in Triton",
                    "Grafana Model: Error ratio in Triton",
                    "canary analysis: failures",
                ),
            ),
            Number(
                "errors",
                "Rejected, lost and failed requests as a share of the requests per second, over 15 s.",
                "as above",
                ("fleet: Errors, Errors/s", "model: Errors"),
            ),
            Number(
                "canceled",
                "Requests that clients gave up. They are no errors, and no failures of a canary.",
                '`nv_inference_request_failure{reason="CANCELED"}`',
                ("Grafana Model: Failures in Triton",),
            ),
        ),
    ),
    Group(
        "Latency",
        (
            Number(
                "latency",
                "Time from a request's arrival at the balancer until its response begins, with all waiting, in the last 10 s: p50, p95 and p99, "
                'interpolated in the balancers\' buckets. The highest bucket ends at 30 s; a higher quantile is shown as "> 30 s". Without balancers: '
                "unknown.",
                "`halcyon_agent_request_duration_seconds`",
                (
                    "fleet: p99, Missing their latency objective",
                    "model: Latency, Client latency",
                    "`halcyon_agent_request_duration_seconds`",
                    "Grafana Fleet, Model: Client latency",
                ),
            ),
            Number(
                "latency objective",
                "`targets.latency`, with the policy Planner.",
                "the spec",
                ("`halcyon_model_latency_target_seconds`", "Grafana Model: Client latency, objective"),
            ),
            Number(
                "server latency",
                "Time from sending a request to a server until its response begins, without waiting in the balancer.",
                "`halcyon_agent_response_duration_seconds`",
                (
                    "`halcyon_agent_response_duration_seconds`",
                    "Grafana Fleet, Model: Server latency",
                    "canary analysis: latency",
                ),
            ),
            Number(
                "time in Triton",
                "Mean time of a successful request in Triton's queue and in the model, without input and output, over 15 s.",
                "(`nv_inference_queue_duration_us` + `nv_inference_compute_infer_duration_us`) / `nv_inference_request_success`",
                ("model: Time in Triton", "Grafana Model: Latency breakdown in Triton (queue, model)"),
            ),
        ),
    ),
    Group(
        "Batches and GPUs",
        (
            Number(
                "batch size",
                "Mean rows of a batch over 15 s.",
                "`nv_inference_count` / `nv_inference_exec_count`",
                (
                    "model: Batch size",
                    "`status.summary.batch`",
                    "`get -o wide`, `top -o wide`: BATCH",
                    "Grafana Model: Batch size",
                ),
            ),
            Number(
                "GPU",
                "GPU utilisation in percent: for each ready pod the mean over its GPUs and 15 s, then the mean over the ready pods that report it, at "
                "least half of them. Without a ready pod: unknown, and not missing.",
                "`nv_gpu_utilization`, DCGM's metric, or the busy share of instances from Triton's batch statistics, in this order",
                (
                    "fleet: GPU",
                    "model: GPU",
                    "`status.summary.gpu`",
                    "`get`, `top`: GPU%",
                    "`halcyon_model_gpu_utilization_ratio`",
                    "Grafana Fleet, Model: GPU utilisation",
                ),
            ),
            Number(
                "signal gpuUtilization",
                "What is compared with the target: the sum over the ready pods. With Rules and HPA, pods that are not ready count as the target where "
                "that prevents a scale-down.",
                "as GPU",
                ("`status.scaling.signals[gpuUtilization]`", "`explain`", "external metric gpuUtilization"),
            ),
            Number(
                "GPUs",
                "GPUs of the model's server pods that have a node, ready or not.",
                "`runtime.gpu.count` and the pods' nodes, every 10 s",
                (
                    "fleet: GPUs, GPUs used",
                    "model: GPUs",
                    "`status.cost.gpus`",
                    "`top`: GPUS",
                    "`halcyon_model_gpus`",
                    "Grafana Fleet: GPUs",
                ),
            ),
            Number(
                "cost per hour",
                "GPUs times the price of one. `top --gpu-price` uses its own price.",
                "the chart's prices",
                (
                    "fleet: Cost/h, Cost per hour",
                    "model: GPUs",
                    "`status.cost.perHour`",
                    "`top`: COST/H",
                    "`halcyon_model_cost_per_hour`",
                ),
            ),
            Number(
                "shares of GPU time",
                "Starting, busy and idle GPU time of the last 24 hours, as shares of all of it. Time without a known utilisation counts as the known "
                "time did; if less than half is known, busy and idle are unknown.",
                "`halcyon_model_gpu_seconds_total`",
                ("`status.cost.startingPercent`, `busyPercent`, `idlePercent`", "`halcyon_model_gpu_seconds_total`"),
            ),
            Number(
                "saving",
                "GPU time of the last 24 hours with `spec.scaling`, compared with `maxReplicas` for the same time.",
                "as GPUs",
                ("`status.cost.savingPercent`",),
            ),
            Number(
                "inferences",
                "Rows computed by server pods with GPUs.",
                "`nv_inference_count`",
                ("`halcyon_model_gpu_inferences_total`", "`status.cost.perThousandInferences`"),
            ),
        ),
    ),
    Group(
        "Replicas",
        (
            Number(
                "ready replicas",
                "Server pods whose condition Ready is True, of all revisions.",
                "the pods",
                (
                    "fleet, model: Replicas",
                    "`status.readyReplicas`",
                    "`get`, `top`: READY",
                    "`halcyon_model_replicas_ready`",
                    "Grafana: Ready servers",
                ),
            ),
            Number(
                "replicas",
                "Replicas in force: `spec.replicas` within the limits of `spec.scaling`.",
                "the spec",
                ("fleet, model: Replicas", "`halcyon_model_spec_replicas`"),
            ),
            Number(
                "existing pods",
                "Server pods that exist, ready or not.",
                "the pods",
                (
                    "`status.replicas`",
                    "`halcyon_model_replicas`",
                    "`halcyon_model_replicas_unschedulable`: those that no node takes",
                    "`halcyon_model_replicas_failed`: those that failed, by reason",
                ),
            ),
            Number(
                "desired replicas",
                "Replicas that the last decision asks for, or the HPA if it decides (policy Rules). In mode Recommend or Paused they are not in force.",
                "the decision, or the HPA's status",
                (
                    "model: Replicas, desired",
                    "`status.scaling.desired`",
                    "`get`: DESIRED",
                    "`explain`",
                    "`halcyon_model_replicas_desired`",
                ),
            ),
            Number(
                "range",
                "`minReplicas` and `maxReplicas`.",
                "the spec",
                (
                    "fleet, model: Replicas",
                    "`get`, `top`: RANGE",
                    "`halcyon_model_replicas_min`",
                    "`halcyon_model_replicas_max`",
                ),
            ),
            Number(
                "start time",
                "Time of a pod from its scheduling on a node until it was ready. `status.coldStart` begins at its creation.",
                "the pods' conditions",
                ("model: Cold starts", "`status.coldStart.seconds`", "`halcyon_model_start_seconds`"),
            ),
        ),
    ),
)
