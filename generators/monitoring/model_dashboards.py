"""Dashboards for owners of models: Fleet (all models) and Model (one model)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from generators.monitoring import triton_metrics
from generators.monitoring.grafana import GrafanaDashboard, Panel, PanelRow, Query
from generators.monitoring.promql import BY, CLUSTER, MODELS, NAME, NAMESPACE, OF, of, per_model, quantile, rate, total
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.agent_metrics import named
from halcyon.monitoring.metric import Metric

_IS_READY: Final = 'type="Ready"'
_NOT_READY: Final = 'type="Ready",status!="True"'
_NOT_LOADED: Final = 'type="ModelLoaded",status="False"'
_UNHEALTHY: Final = (
    'type=~"Ready|Accepted|ModelLoaded|ServersReady|BalancerReady|RoutesAccepted|ScalingActive",status!="True"'
)
_PROBLEMS: Final = 'type=~"Stalled|AutoscalerConflict|OperatorConflict|RequestsFailing",status="True"'
"""Conditions that are true while something is wrong."""
_BY_REASON: Final = ("type", "status", "reason")
_AT_MAX: Final = 'limit="max"'
_FAILURES: Final = rate(triton_metrics.FAILURE, *OF, "model", matchers='reason!="CANCELED"')


def _number(title: str, description: str, expression: str, *, limits: dict[float, str] | None = None) -> Panel:
    query = Query(expression, title.lower())
    return Panel(title, description, (query,), kind="stat", width=4, height=4, limits=limits or {})


def _models_with(metric: Metric, matchers: str) -> str:
    """Return a query for the number of models with such a series. Without any model's series, it is unknown, not 0."""
    models = per_model(per_model_metrics.CONDITION, matchers=_IS_READY)
    return f"count({per_model(metric, matchers=matchers)}) or 0 * count({models})"


def _top(expression: str) -> tuple[Query, ...]:
    return (Query(f"topk(10, {expression})", NAME),)


FLEET: Final = GrafanaDashboard(
    "halcyon-fleet",
    "Halcyon / Fleet",
    "All models at a glance: those that are not ready, at their maximum, or have a queue.",
    (
        PanelRow(
            "Now",
            (
                _number(
                    "Models",
                    "ModelDeployments.",
                    f"count({per_model(per_model_metrics.CONDITION, matchers=_IS_READY)})",
                ),
                _number(
                    "Not ready",
                    "Models whose condition Ready isn't True. Their requests fail or wait.",
                    _models_with(per_model_metrics.CONDITION, _NOT_READY),
                    limits={1: "red"},
                ),
                _number(
                    "Load failures",
                    "Models that Triton can't load.",
                    _models_with(per_model_metrics.CONDITION, _NOT_LOADED),
                    limits={1: "red"},
                ),
                _number(
                    "At maximum",
                    "Models that need more replicas than their maximum, which spec.scaling.maxReplicas or a schedule sets.",
                    _models_with(per_model_metrics.LIMITED, _AT_MAX),
                    limits={1: "orange"},
                ),
                _number("Ready servers", "Server pods that are ready.", f"sum({per_model(per_model_metrics.READY)})"),
                _number("GPUs", "GPUs of server pods that have a node.", f"sum({per_model(per_model_metrics.GPUS)})"),
            ),
        ),
        PanelRow(
            "Models",
            (
                Panel(
                    "Replicas and queue",
                    "Ready replicas, replicas in force, maximum and queued requests, per model.",
                    (
                        Query(per_model(per_model_metrics.READY), "ready"),
                        Query(per_model(per_model_metrics.SPEC_REPLICAS), "in force"),
                        Query(per_model(per_model_metrics.MAX), "max"),
                        Query(per_model(per_model_metrics.QUEUE), "queued"),
                        Query(per_model(per_model_metrics.GPU_UTILIZATION), "GPU, 0 to 1"),
                    ),
                    kind="table",
                    width=14,
                    height=10,
                ),
                Panel(
                    "Unhealthy conditions",
                    "Conditions that aren't True, and those that are True while something is wrong, with their reasons. "
                    "docs/reference/conditions.md explains each.",
                    (
                        Query(
                            f"{per_model(per_model_metrics.CONDITION, *_BY_REASON, matchers=_UNHEALTHY)} or "
                            f"{per_model(per_model_metrics.CONDITION, *_BY_REASON, matchers=_PROBLEMS)}",
                            "present",
                        ),
                    ),
                    kind="table",
                    width=10,
                    height=10,
                    hidden=("Value",),
                ),
            ),
        ),
        PanelRow(
            "Busiest models",
            (
                Panel(
                    "Requests", "Arrival rate of the ten busiest models.", _top(rate(named("requests_total"))), "reqps"
                ),
                Panel(
                    "Rejected or lost",
                    "Requests that balancers rejected, or that were lost. Rejected requests count as demand.",
                    _top(f"{rate(named('rejected_total'))} + {rate(named('errors_total'))}"),
                    "reqps",
                ),
                Panel(
                    "Waiting",
                    "Requests that wait in balancers and in Triton, of models with spec.scaling.",
                    _top(per_model(per_model_metrics.QUEUE)),
                ),
                Panel(
                    "Client latency, p95",
                    "Time from a request's arrival until the response headers, with the wait in the balancer.",
                    _top(quantile(0.95, named("request_duration_seconds"))),
                    "s",
                ),
                Panel(
                    "Server latency, p95",
                    "Time until the response headers, without the wait in the balancer.",
                    _top(quantile(0.95, named("response_duration_seconds"))),
                    "s",
                ),
                Panel(
                    "GPU utilisation",
                    "Mean of each model's ready servers, for the ten busiest models. Far below the target for a long time: too many replicas.",
                    _top(per_model(per_model_metrics.GPU_UTILIZATION)),
                    "percentunit",
                ),
                Panel(
                    "Servers", "Ready server pods of the ten largest models.", _top(per_model(per_model_metrics.READY))
                ),
            ),
        ),
    ),
    (CLUSTER, NAMESPACE, MODELS),
)


def _mean_time(title: str, metric: Metric) -> Query:
    """Return a query for the mean seconds per request: summed microseconds divided by the number of requests."""
    return Query(f"{rate(metric)} / {rate(triton_metrics.SUCCESS)} / 1e6", title)


MODEL: Final = GrafanaDashboard(
    "halcyon-model",
    "Halcyon / Model",
    "One model: requests, queue, latency breakdown, batch sizes and GPU utilisation.",
    (
        PanelRow(
            "State",
            (
                Panel(
                    "Conditions",
                    "Every condition with its status and reason.",
                    (Query(per_model(per_model_metrics.CONDITION, "type", "status", "reason"), "present"),),
                    kind="table",
                    width=12,
                    hidden=(*OF, "Value"),
                ),
                Panel(
                    "Replicas",
                    "Ready servers should follow the replicas in force, which are within the limits of spec.scaling.",
                    (
                        Query(per_model(per_model_metrics.READY), "ready"),
                        Query(per_model(per_model_metrics.SPEC_REPLICAS), "in force"),
                        Query(per_model(per_model_metrics.MIN), "min"),
                        Query(per_model(per_model_metrics.MAX), "max"),
                        Query(per_model(per_model_metrics.UNSCHEDULABLE), "unschedulable"),
                        Query(per_model(per_model_metrics.FAILED, "reason"), "failed: {{reason}}"),
                    ),
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Requests",
            (
                Panel(
                    "Requests",
                    "Requests received, and those without a response from a server.",
                    (
                        Query(rate(named("requests_total")), "received"),
                        Query(rate(named("rejected_total")), "rejected"),
                        Query(rate(named("errors_total")), "lost"),
                        Query(rate(named("server_rejected_total")), "refused by servers"),
                        Query(rate(named("retries_total")), "retried"),
                        Query(rate(named("held_requests_total")), "held for the first server"),
                    ),
                    "reqps",
                ),
                Panel(
                    "Requests by client",
                    "Requests received by the name of the client's API key. Empty without traffic.apiKeys.",
                    (Query(rate(named("client_requests_total"), "client"), "{{client}}"),),
                    "reqps",
                ),
                Panel(
                    "Queued",
                    "Requests that wait in balancers and in Triton, beside the target of all ready servers, at least one.",
                    (
                        Query(total(named("queued")), "for a server's free capacity"),
                        Query(total(named("held")), "for the first server"),
                        Query(total(triton_metrics.PENDING), "in Triton"),
                        Query(
                            f"{per_model(per_model_metrics.QUEUE_TARGET)} * clamp_min({per_model(per_model_metrics.READY)}, 1)",
                            "target",
                        ),
                    ),
                ),
                Panel(
                    "Client latency",
                    "Time from a request's arrival until the response headers, with the wait in the balancer, beside the latency objective.",
                    (
                        *(
                            Query(quantile(share, named("request_duration_seconds")), f"p{share * 100:g}")
                            for share in (0.5, 0.95, 0.99)
                        ),
                        Query(per_model(per_model_metrics.LATENCY_TARGET), "objective"),
                    ),
                    "s",
                ),
                Panel(
                    "Server latency",
                    "Time until the response headers, including Triton's queue, without the wait in the balancer.",
                    tuple(
                        Query(quantile(share, named("response_duration_seconds")), f"p{share * 100:g}")
                        for share in (0.5, 0.95, 0.99)
                    ),
                    "s",
                ),
                Panel(
                    "Time to first event of streams",
                    "Time from the arrival of a generate_stream or ModelStreamInfer request until its first event.",
                    tuple(
                        Query(quantile(share, named("first_event_duration_seconds")), f"p{share * 100:g}")
                        for share in (0.5, 0.95, 0.99)
                    ),
                    "s",
                ),
                Panel(
                    "Latency breakdown in Triton",
                    "Mean time of a request in Triton, by part. If the queue is most of it, add replicas or allow larger batches.",
                    (
                        _mean_time("queue", triton_metrics.QUEUE_TIME),
                        _mean_time("input", triton_metrics.INPUT_TIME),
                        _mean_time("model", triton_metrics.INFER_TIME),
                        _mean_time("output", triton_metrics.OUTPUT_TIME),
                    ),
                    "s",
                    stacked=True,
                ),
                Panel(
                    "Failures in Triton",
                    "Failures by reason: REJECTED by the queue policy, BACKEND by the model, OTHER before it. A failure of an ensemble "
                    "is also counted for its steps.",
                    (Query(rate(triton_metrics.FAILURE, "reason"), "{{reason}}"),),
                    "reqps",
                    stacked=True,
                ),
                Panel(
                    "Error ratio in Triton",
                    "Share of the requests in Triton that fail, without those that clients cancelled. Of several models in a pod, such as the "
                    "steps of an ensemble, the largest share. Above 5 %: HalcyonErrorRatioHigh.",
                    (
                        Query(
                            f"max by ({BY}) ({_FAILURES} / ({rate(triton_metrics.SUCCESS, *OF, 'model')} + {_FAILURES}))",
                            "failed",
                        ),
                    ),
                    "percentunit",
                ),
            ),
        ),
        PanelRow(
            "Batches and GPUs",
            (
                Panel(
                    "Batch size",
                    "Mean number of items in a batch. Far below batching.maxBatchSize under full load: remove batching.maxQueueDelay, which "
                    "keeps batches from filling.",
                    (Query(f"{rate(triton_metrics.ROWS)} / {rate(triton_metrics.EXECUTIONS)}", "items"),),
                ),
                Panel(
                    "GPU utilisation",
                    "Utilisation of each pod from Triton, and the mean that scaling uses, beside its target.",
                    (
                        Query(f"avg by (pod) ({of(triton_metrics.GPU_UTILIZATION)})", "{{pod}}"),
                        Query(per_model(per_model_metrics.GPU_UTILIZATION), "mean used by scaling"),
                        Query(per_model(per_model_metrics.GPU_TARGET), "target"),
                    ),
                    "percentunit",
                ),
                Panel(
                    "GPU memory",
                    "Share of GPU memory in use, per pod. A model that doesn't fit fails to load.",
                    (
                        Query(
                            f"{total(triton_metrics.GPU_MEMORY_USED, 'pod')} / {total(triton_metrics.GPU_MEMORY, 'pod')}",
                            "{{pod}}",
                        ),
                    ),
                    "percentunit",
                ),
            ),
        ),
        PanelRow(
            "Pods",
            (
                Panel(
                    "Requests in progress, by pod",
                    "Requests that servers are processing. One line far above the others: connections that are pinned to a pod.",
                    (Query(total(named("pod_inflight"), "server_pod"), "{{server_pod}}"),),
                    width=12,
                ),
                Panel(
                    "Pod states",
                    "States from the balancers: starting, ready, draining, maintenance (taken out of rotation) or unreachable.",
                    (Query(f"max by (server_pod, state) ({of(named('pod_state'))})", "{{server_pod}} {{state}}"),),
                    width=12,
                ),
            ),
        ),
    ),
    (CLUSTER, replace(NAMESPACE, several=False), replace(MODELS, several=False)),
)
