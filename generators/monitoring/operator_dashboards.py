"""Dashboards for scaling decisions (Scaling) and the operator's own state (Operator)."""

from __future__ import annotations

from typing import Final

from generators.monitoring.grafana import GrafanaDashboard, Panel, PanelRow, Query, Variable
from generators.monitoring.promql import (
    BY,
    CLUSTER,
    MODELS,
    NAME,
    NAMESPACE,
    REPLICA,
    of,
    operators,
    operators_quantile,
    operators_rate,
    per_cluster,
    per_model,
    per_replica,
)
from halcyon.monitoring import operator_metrics, per_model_metrics
from halcyon.monitoring.metric import Metric

# Every program that Prometheus scrapes has `up` and the metrics of its process, so All must not select every job.
_JOB: Final = Variable("job", "Job", f"label_values({operator_metrics.LEADER.name}, job)", all_value=None)
_SIGNAL_TIME: Final = of(per_model_metrics.SIGNAL_TIME)
_CHANGES: Final = f"sum by ({BY}, direction) (increase({of(per_model_metrics.CHANGES)}[$__rate_interval]))"

SCALING: Final = GrafanaDashboard(
    "halcyon-scaling",
    "Halcyon / Scaling",
    "Why models have their current replicas. `kubectl halcyon explain NAME` gives the reason for one model in a sentence.",
    (
        PanelRow(
            "Replicas",
            (
                Panel(
                    "Replicas",
                    "Desired replicas, replicas in force and ready replicas, between the limits. Desired above in force: another writer sets "
                    "replicas, or scaling is paused. In force above ready: pods are starting, or are unschedulable.",
                    (
                        Query(per_model(per_model_metrics.DESIRED), f"{NAME} desired"),
                        Query(per_model(per_model_metrics.SPEC_REPLICAS), f"{NAME} in force"),
                        Query(per_model(per_model_metrics.READY), f"{NAME} ready"),
                        Query(per_model(per_model_metrics.MIN), f"{NAME} min"),
                        Query(per_model(per_model_metrics.MAX), f"{NAME} max"),
                    ),
                    width=12,
                    height=9,
                ),
                Panel(
                    "Replicas by part",
                    "Replicas that each part requires: request rate, its trend and season, backlog, queue depth, GPU utilisation. The largest "
                    "value decides.",
                    (Query(per_model(per_model_metrics.PART, "part"), f"{NAME} {{{{part}}}}"),),
                    width=12,
                    height=9,
                ),
                Panel(
                    "Limits",
                    "Limits that changed or kept the desired replicas in spite of the signals. max with a queue: HalcyonModelAtMax.",
                    (Query(per_model(per_model_metrics.LIMITED, "limit"), f"{NAME} {{{{limit}}}}"),),
                    kind="state-timeline",
                    width=12,
                ),
                Panel(
                    "Changes of the desired replicas",
                    "Changes up and down. Many of both within minutes: targets that contradict each other.",
                    (Query(_CHANGES, f"{NAME} {{{{direction}}}}"),),
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Signals",
            (
                Panel(
                    "Planned request rate",
                    "Arrival rate that the planner uses, including rejected requests. After the load falls, it follows within a minute.",
                    (Query(per_model(per_model_metrics.REQUEST_RATE), NAME),),
                    "reqps",
                ),
                Panel(
                    "Queue, relative to the target",
                    "Queued requests divided by the target of all ready servers. Above 100 % for a long time: the model scales up, or is limited.",
                    (
                        Query(
                            f"{per_model(per_model_metrics.QUEUE)} / ({per_model(per_model_metrics.QUEUE_TARGET)} * clamp_min({per_model(per_model_metrics.READY)}, 1))",
                            NAME,
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "GPU utilisation, relative to the target",
                    "Mean GPU utilisation of the ready servers divided by its target.",
                    (
                        Query(
                            f"{per_model(per_model_metrics.GPU_UTILIZATION)} / {per_model(per_model_metrics.GPU_TARGET)}",
                            NAME,
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Signal age",
                    "Age of the values in the last decision, at the time of each scrape. Values older than 10 s are ignored, and the replicas are kept.",
                    (
                        Query(
                            # Not time(), which would add the time since the last scrape.
                            f"max by ({BY}, signal) (timestamp({_SIGNAL_TIME}) - {_SIGNAL_TIME})",
                            f"{NAME} {{{{signal}}}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Missing signals",
                    "1 if a signal has no value. A missing value is not treated as zero: the model is not scaled down on it.",
                    (Query(per_model(per_model_metrics.SIGNAL_MISSING, "signal"), f"{NAME} {{{{signal}}}}"),),
                ),
                Panel(
                    "Last server start",
                    "Time from the scheduling of the pod that became ready last until it was ready: pull, fetch, load, warm-up.",
                    (Query(per_model(per_model_metrics.START), NAME),),
                    "s",
                ),
            ),
        ),
    ),
    (CLUSTER, NAMESPACE, MODELS),
)


def _quantiles(title: str, description: str, metric: Metric, window: str = "$__rate_interval") -> Panel:
    shares = ((0.5, "p50"), (0.99, "p99"))
    queries = tuple(Query(operators_quantile(share, metric, window), name) for share, name in shares)
    return Panel(title, description, queries, "s")


OPERATOR: Final = GrafanaDashboard(
    "halcyon-operator",
    "Halcyon / Operator",
    "Health of the operator: leader, failures, backlog, memory and CPU.",
    (
        PanelRow(
            "Replicas",
            (
                Panel(
                    "Leader",
                    "1 for the leader. No leader for 5 minutes: HalcyonNoLeader.",
                    (Query(per_replica(operator_metrics.LEADER), REPLICA),),
                    kind="state-timeline",
                    limits={1: "blue"},
                ),
                Panel(
                    "Scraped",
                    "Replicas that Prometheus can scrape.",
                    (Query(f"sum({operators('up')})", "replicas"),),
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Versions",
                    "Version of each replica; two versions during an upgrade.",
                    (Query(f"max by (cluster, instance, version) ({operators(operator_metrics.BUILD)})", "present"),),
                    kind="table",
                    width=6,
                    hidden=("Value",),
                ),
                Panel(
                    "Models",
                    "ModelDeployments in the caches, over the selected clusters.",
                    (Query(per_cluster(operator_metrics.MODELS), "models"),),
                    kind="stat",
                    width=6,
                ),
            ),
        ),
        PanelRow(
            "Reconciles",
            (
                Panel(
                    "Reconciles",
                    "Reconciles by result. Repeated errors: HalcyonReconcileErrors.",
                    (Query(operators_rate(operator_metrics.RECONCILES, "result"), "{{result}}"),),
                    "ops",
                ),
                _quantiles(
                    "Reconcile duration", "Most of it is spent waiting for the API server.", operator_metrics.RECONCILE
                ),
                Panel(
                    "Work queue",
                    "ModelDeployments in the work queue. If ready ones remain for 10 minutes: HalcyonReconcileBacklog.",
                    (
                        Query(per_cluster(operator_metrics.QUEUE_READY), "ready"),
                        Query(per_cluster(operator_metrics.QUEUE_WAITING), "scheduled for later"),
                    ),
                ),
                Panel(
                    "Writes",
                    "Writes to the API server, without those of the Lease. If nothing changes, there are only those of the planner's memory.",
                    (
                        Query(operators_rate(operator_metrics.API_WRITES), "all"),
                        Query(operators_rate(operator_metrics.OBJECTS_WRITTEN), "child objects"),
                        Query(operators_rate(operator_metrics.STATUSES_WRITTEN), "statuses"),
                    ),
                    "ops",
                ),
                Panel(
                    "Child objects without a write",
                    "Child objects that were compared and are up to date.",
                    (Query(operators_rate(operator_metrics.OBJECTS_SKIPPED), "skipped"),),
                    "ops",
                ),
                _quantiles(
                    "Server pod starts",
                    "Time from scheduling until ready, over all models and the last hour.",
                    operator_metrics.POD_START,
                    "1h",
                ),
            ),
        ),
        PanelRow(
            "Decisions",
            (
                _quantiles(
                    "Decision duration",
                    "Duration including the collection of inputs; the budget is 100 us.",
                    operator_metrics.DECISION,
                ),
                _quantiles(
                    "Decision age",
                    "Age of the decision of a model at a random moment. p99 above 5 s: too little CPU.",
                    operator_metrics.DECISION_AGE,
                ),
                Panel(
                    "Metric queries from HPAs",
                    "Queries by HTTP status. 404 means that the value is missing; the HPA then keeps its replicas.",
                    (Query(operators_rate(operator_metrics.METRIC_REQUESTS, "code"), "{{code}}"),),
                    "reqps",
                ),
                Panel(
                    "Agent streams",
                    "Open streams: each balancer pod has one to every replica.",
                    (Query(per_replica(operator_metrics.STREAMS), REPLICA),),
                ),
                Panel(
                    "Agent reports",
                    "Reports by result. malformed or forbidden: a balancer of another version, or an attempted misuse.",
                    (Query(operators_rate(operator_metrics.REPORTS, "result"), "{{result}}"),),
                    "ops",
                ),
                Panel(
                    "Stream requests and implausible values",
                    "Requests to open a stream by result, and reported values that can't be true, which are treated as unknown.",
                    (
                        Query(operators_rate(operator_metrics.STREAM_REQUESTS, "result"), "stream {{result}}"),
                        Query(operators_rate(operator_metrics.IMPLAUSIBLE_VALUES), "implausible values"),
                    ),
                    "ops",
                ),
            ),
        ),
        PanelRow(
            "Resource usage",
            (
                Panel(
                    "Memory",
                    "Resident memory. Expected: 130 MiB plus 0.8 MiB for each model with two balancers. The container's limit is 1.5 times that.",
                    (
                        Query(per_replica(operator_metrics.MEMORY), REPLICA),
                        Query(per_replica(operator_metrics.PEAK_MEMORY), f"{REPLICA} peak"),
                    ),
                    "bytes",
                    width=12,
                ),
                Panel(
                    "CPU",
                    "CPU usage in cores.",
                    (Query(operators_rate(operator_metrics.CPU, "cluster", "instance"), REPLICA),),
                    width=12,
                ),
            ),
        ),
    ),
    (CLUSTER, _JOB),
)
