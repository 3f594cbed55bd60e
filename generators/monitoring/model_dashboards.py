"""The dashboards for whoever serves models: all of them, and one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from generators.monitoring import triton_metrics
from generators.monitoring.grafana import GrafanaDashboard, Panel, PanelRow, Query
from generators.monitoring.promql import MODELS, NAME, NAMESPACE, most, of, quantile, rate, total
from halcyon.monitoring import per_model_metrics
from halcyon.monitoring.agent_metrics import named
from halcyon.monitoring.metric import Metric

_IS_READY: Final = 'type="Ready"'
_NOT_READY: Final = 'type="Ready",status!="True"'
_NOT_LOADED: Final = 'type="ModelLoaded",status="False"'
_NOT_WELL: Final = 'type=~"Ready|Accepted|ModelLoaded|ServersReady|BalancerReady|ScalingActive",status!="True"'
_AT_MAX: Final = 'limit="max"'
_REAL_FAILURES: Final = 'reason!="CANCELED"'


def _number(title: str, description: str, expression: str, *, limits: dict[float, str] | None = None) -> Panel:
    query = Query(expression, title.lower())
    return Panel(title, description, (query,), kind="stat", width=4, height=4, limits=limits or {})


def _top(expression: str) -> tuple[Query, ...]:
    return (Query(f"topk(10, {expression})", NAME),)


FLEET: Final = GrafanaDashboard(
    "halcyon-fleet",
    "Halcyon / Fleet",
    "Every model at a glance: which are not ready, which are at their limit, who waits.",
    (
        PanelRow(
            "Now",
            (
                _number(
                    "Models", "ModelDeployments.", f"count({most(per_model_metrics.CONDITION, matchers=_IS_READY)})"
                ),
                _number(
                    "Not ready",
                    "Models whose condition Ready isn't True: their requests fail or wait.",
                    f"count({most(per_model_metrics.CONDITION, matchers=_NOT_READY)}) or vector(0)",
                    limits={1: "red"},
                ),
                _number(
                    "Loads failed",
                    "Models that Triton can't load.",
                    f"count({most(per_model_metrics.CONDITION, matchers=_NOT_LOADED)}) or vector(0)",
                    limits={1: "red"},
                ),
                _number(
                    "At their maximum",
                    "Models that would have more replicas if spec.scaling.maxReplicas let them.",
                    f"count({most(per_model_metrics.LIMITED, matchers=_AT_MAX)}) or vector(0)",
                    limits={1: "orange"},
                ),
                _number("Servers ready", "Server pods that are ready.", f"sum({most(per_model_metrics.READY)})"),
                _number("GPUs", "GPUs that server pods ask for.", f"sum({most(per_model_metrics.GPUS)})"),
            ),
        ),
        PanelRow(
            "Models",
            (
                Panel(
                    "Replicas and queue",
                    "Ready and wanted replicas, limits, and requests that wait, per model.",
                    (
                        Query(most(per_model_metrics.READY), "ready"),
                        Query(most(per_model_metrics.WANTED), "wanted"),
                        Query(most(per_model_metrics.MAX), "max"),
                        Query(most(per_model_metrics.QUEUE), "waiting"),
                        Query(most(per_model_metrics.GPU_UTILIZATION), "GPU, 0 to 1"),
                    ),
                    kind="table",
                    width=14,
                    height=10,
                ),
                Panel(
                    "What is not well",
                    "Conditions that aren't True, with their reasons. docs/reference/conditions.md explains each.",
                    (
                        Query(
                            most(per_model_metrics.CONDITION, "type", "status", "reason", matchers=_NOT_WELL), "there"
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
            "The busiest",
            (
                Panel("Requests", "Requests that come, the ten busiest.", _top(rate(named("requests_total"))), "reqps"),
                Panel(
                    "Refused or lost",
                    "Requests that balancers refused, or lost on the way. Refused ones count as demand.",
                    _top(f"{rate(named('refused_total'))} + {rate(named('errors_total'))}"),
                    "reqps",
                ),
                Panel(
                    "Waiting",
                    "Requests that wait in balancers, for room or for the first server.",
                    _top(f"{total(named('queued'))} + {total(named('held'))}"),
                ),
                Panel(
                    "Time in servers, p95",
                    "Until the headers of the answer; the wait in the balancer is not in it.",
                    _top(quantile(0.95, named("answer_duration_seconds"))),
                    "s",
                ),
                Panel(
                    "GPU utilisation",
                    "Mean of each model's ready servers, the ten busiest. Far below its target for long: too many replicas.",
                    _top(most(per_model_metrics.GPU_UTILIZATION)),
                    "percentunit",
                ),
                Panel("Servers", "Ready server pods, the ten largest models.", _top(most(per_model_metrics.READY))),
            ),
        ),
    ),
    (NAMESPACE, MODELS),
)


def _mean_time(title: str, metric: Metric) -> Query:
    """Seconds per request: microseconds added up, over requests."""
    return Query(f"{rate(metric)} / {rate(triton_metrics.SUCCESS)} / 1e6", title)


ONE: Final = GrafanaDashboard(
    "halcyon-model",
    "Halcyon / Model",
    "One model: what comes, what waits, where the time goes, and how full batches and GPUs are.",
    (
        PanelRow(
            "State",
            (
                Panel(
                    "Conditions",
                    "Every condition with its status and reason.",
                    (Query(most(per_model_metrics.CONDITION, "type", "status", "reason"), "there"),),
                    kind="table",
                    width=12,
                    hidden=(*per_model_metrics.OF, "Value"),
                ),
                Panel(
                    "Replicas",
                    "Ready servers should follow the count in force; its limits are those of spec.scaling.",
                    (
                        Query(most(per_model_metrics.READY), "ready"),
                        Query(most(per_model_metrics.WANTED), "in force"),
                        Query(most(per_model_metrics.MIN), "min"),
                        Query(most(per_model_metrics.MAX), "max"),
                        Query(most(per_model_metrics.UNSCHEDULABLE), "unschedulable"),
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
                    "What came, and what didn't get an answer from a server.",
                    (
                        Query(rate(named("requests_total")), "came"),
                        Query(rate(named("refused_total")), "refused"),
                        Query(rate(named("errors_total")), "lost"),
                        Query(rate(named("repeated_total")), "sent again"),
                        Query(rate(named("held_requests_total")), "waited for the first server"),
                    ),
                    "reqps",
                ),
                Panel(
                    "Waiting",
                    "Requests that wait in balancers and in Triton, beside the target of all ready servers.",
                    (
                        Query(total(named("queued")), "for room in a server"),
                        Query(total(named("held")), "for the first server"),
                        Query(total(triton_metrics.PENDING), "in Triton"),
                        Query(f"{most(per_model_metrics.QUEUE_TARGET)} * {most(per_model_metrics.READY)}", "target"),
                    ),
                ),
                Panel(
                    "Time in servers",
                    "Until the headers of the answer, Triton's own queue included; the wait in the balancer is not.",
                    tuple(
                        Query(quantile(share, named("answer_duration_seconds")), f"p{share * 100:g}")
                        for share in (0.5, 0.95, 0.99)
                    ),
                    "s",
                ),
                Panel(
                    "Where the time goes",
                    "Mean time of a request in Triton, by part. A queue that is most of it: more replicas, or larger batches.",
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
                    "By reason: REJECTED by the queue policy, BACKEND by the model, OTHER before it. An ensemble's failures "
                    "count for its parts too.",
                    (Query(rate(triton_metrics.FAILURE, "reason"), "{{reason}}"),),
                    "reqps",
                    stacked=True,
                ),
                Panel(
                    "Share that fails",
                    "Failures of all requests in Triton, without those that clients cancelled. Above 5 %: HalcyonErrorRatioHigh.",
                    (
                        Query(
                            f"{rate(triton_metrics.FAILURE, matchers=_REAL_FAILURES)} / ({rate(triton_metrics.SUCCESS)}"
                            f" + {rate(triton_metrics.FAILURE, matchers=_REAL_FAILURES)})",
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
                    "Rows in a batch",
                    "Mean. Far below batching.maxBatchSize under full load: leave batching.maxQueueDelay out, it keeps batches from filling.",
                    (Query(f"{rate(triton_metrics.ROWS)} / {rate(triton_metrics.EXECUTIONS)}", "rows"),),
                ),
                Panel(
                    "GPU utilisation",
                    "As Triton tells it per pod, and as scaling has it, beside its target.",
                    (
                        Query(f"avg by (pod) ({of(triton_metrics.GPU_UTILIZATION)})", "{{pod}}"),
                        Query(most(per_model_metrics.GPU_UTILIZATION), "mean, as scaling has it"),
                        Query(most(per_model_metrics.GPU_TARGET), "target"),
                    ),
                    "percentunit",
                ),
                Panel(
                    "GPU memory",
                    "Share in use, per pod. A model that doesn't fit fails to load.",
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
                    "Requests in pods",
                    "What servers work on now. One line far above the others: connections that are pinned to a pod.",
                    (Query(total(named("pod_inflight"), "pod"), "{{pod}}"),),
                    width=12,
                ),
                Panel(
                    "States of pods",
                    "As balancers see them: starting, ready, draining, maintenance (taken out) or unreachable.",
                    (Query(f"max by (pod, state) ({of(named('pod_state'))})", "{{pod}} {{state}}"),),
                    width=12,
                ),
            ),
        ),
    ),
    (replace(NAMESPACE, several=False), replace(MODELS, several=False)),
)
