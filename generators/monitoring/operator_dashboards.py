"""The dashboards for whoever wants to know why: scaling, and the operator itself."""

from __future__ import annotations

from typing import Final

from generators.monitoring.grafana import GrafanaDashboard, Panel, PanelRow, Query, Variable
from generators.monitoring.promql import (
    MODELS,
    NAME,
    NAMESPACE,
    most,
    of,
    operators,
    operators_quantile,
    operators_rate,
)
from halcyon.monitoring import operator_metrics, per_model_metrics
from halcyon.monitoring.metric import Metric

_JOB: Final = Variable("job", "Job", f"label_values({operator_metrics.LEADING.name}, job)")
_CHANGES: Final = (
    f"sum by ({per_model_metrics.BY}, direction) (increase({of(per_model_metrics.CHANGES)}[$__rate_interval]))"
)

SCALING: Final = GrafanaDashboard(
    "halcyon-scaling",
    "Halcyon / Scaling",
    "Why there are as many replicas as there are. `kubectl halcyon explain NAME` says it in a sentence.",
    (
        PanelRow(
            "Counts",
            (
                Panel(
                    "Replicas",
                    "Asked for, in force and ready, between the limits. Asked for above in force: somebody else writes, or scaling is "
                    "paused. In force above ready: pods start, or find no node.",
                    (
                        Query(most(per_model_metrics.DESIRED), f"{NAME} asked for"),
                        Query(most(per_model_metrics.WANTED), f"{NAME} in force"),
                        Query(most(per_model_metrics.READY), f"{NAME} ready"),
                        Query(most(per_model_metrics.MIN), f"{NAME} min"),
                        Query(most(per_model_metrics.MAX), f"{NAME} max"),
                    ),
                    width=12,
                    height=9,
                ),
                Panel(
                    "What each part asks for",
                    "The largest counts: the rate of requests, its trend and season, the backlog, queue depth, GPU utilisation.",
                    (Query(most(per_model_metrics.PART, "part"), f"{NAME} {{{{part}}}}"),),
                    width=12,
                    height=9,
                ),
                Panel(
                    "What limits it",
                    "What changed or kept the count after the signals had spoken. max with a queue: HalcyonModelAtMax.",
                    (Query(most(per_model_metrics.LIMITED, "limit"), f"{NAME} {{{{limit}}}}"),),
                    kind="state-timeline",
                    width=12,
                ),
                Panel(
                    "Changes of the count asked for",
                    "Up and down. Many of both within minutes: targets that contradict each other.",
                    (Query(_CHANGES, f"{NAME} {{{{direction}}}}"),),
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Signals",
            (
                Panel(
                    "Requests",
                    "As the planner has them, refused ones included.",
                    (Query(most(per_model_metrics.REQUEST_RATE), NAME),),
                    "reqps",
                ),
                Panel(
                    "Waiting, of the target",
                    "Requests that wait, over the target of all ready servers. Above 1 for long: it is scaled up, or limited.",
                    (
                        Query(
                            f"{most(per_model_metrics.QUEUE)} / ({most(per_model_metrics.QUEUE_TARGET)} * clamp_min({most(per_model_metrics.READY)}, 1))",
                            NAME,
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "GPU utilisation, of the target",
                    "Mean of the ready servers over its target.",
                    (Query(f"{most(per_model_metrics.GPU_UTILIZATION)} / {most(per_model_metrics.GPU_TARGET)}", NAME),),
                    "percentunit",
                ),
                Panel(
                    "Age of the signals",
                    "How old the values of the last decision are now. Above 10 s they don't count, and the count holds.",
                    (Query(f"time() - {most(per_model_metrics.SIGNAL_TIME, 'signal')}", f"{NAME} {{{{signal}}}}"),),
                    "s",
                ),
                Panel(
                    "Missing signals",
                    "1 where a signal has no value. Missing is not zero: the count doesn't go down on it.",
                    (Query(most(per_model_metrics.SIGNAL_MISSING, "signal"), f"{NAME} {{{{signal}}}}"),),
                ),
                Panel(
                    "Start of a server",
                    "Time of the pod that became ready last, from its node to its readiness: pull, fetch, load, warm up.",
                    (Query(most(per_model_metrics.START), NAME),),
                    "s",
                ),
            ),
        ),
    ),
    (NAMESPACE, MODELS),
)


def _quantiles(title: str, description: str, metric: Metric, over: str = "$__rate_interval") -> Panel:
    shares = ((0.5, "p50"), (0.99, "p99"))
    asked = tuple(Query(operators_quantile(share, metric, over), name) for share, name in shares)
    return Panel(title, description, asked, "s")


OPERATOR: Final = GrafanaDashboard(
    "halcyon-operator",
    "Halcyon / Operator",
    "Whether the operator is well: who leads, what fails, what waits, and what it costs.",
    (
        PanelRow(
            "Replicas",
            (
                Panel(
                    "Leads",
                    "1 for the replica that leads. None for 5 minutes: HalcyonNobodyLeads.",
                    (Query(operators(operator_metrics.LEADING), "{{instance}}"),),
                    kind="state-timeline",
                    limits={1: "blue"},
                ),
                Panel(
                    "Scraped",
                    "Replicas that Prometheus reaches.",
                    (Query(f"sum({operators('up')})", "replicas"),),
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Versions",
                    "Of each replica; two during an upgrade.",
                    (Query(f"max by (instance, version) ({operators(operator_metrics.BUILD)})", "there"),),
                    kind="table",
                    width=6,
                    hidden=("Value",),
                ),
                Panel(
                    "Models",
                    "ModelDeployments in the caches.",
                    (Query(f"max({operators(operator_metrics.MODELS)})", "models"),),
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
                    "By result. error for long: HalcyonReconcilesFail.",
                    (Query(operators_rate(operator_metrics.RECONCILES, "result"), "{{result}}"),),
                    "ops",
                ),
                _quantiles("Time of a reconcile", "Most of it is the API server's.", operator_metrics.RECONCILE),
                Panel(
                    "Work queue",
                    "Ready ones that stay: HalcyonWorkWaits.",
                    (
                        Query(f"max({operators(operator_metrics.QUEUE_READY)})", "ready"),
                        Query(f"max({operators(operator_metrics.QUEUE_WAITING)})", "waiting for their time"),
                    ),
                ),
                Panel(
                    "Writes",
                    "To the API server. At rest there are none but Lease and history.",
                    (
                        Query(operators_rate(operator_metrics.API_WRITES), "all"),
                        Query(operators_rate(operator_metrics.OBJECTS_WRITTEN), "child objects"),
                        Query(operators_rate(operator_metrics.STATUSES_WRITTEN), "statuses"),
                    ),
                    "ops",
                ),
                Panel(
                    "Child objects that needed no write",
                    "Compared, and as they should be.",
                    (Query(operators_rate(operator_metrics.OBJECTS_SKIPPED), "skipped"),),
                    "ops",
                ),
                _quantiles(
                    "Start of a server pod",
                    "From its node to its readiness, all models, of the last hour.",
                    operator_metrics.POD_START,
                    "1h",
                ),
            ),
        ),
        PanelRow(
            "Decisions",
            (
                _quantiles(
                    "Time of a decision", "Its reading included; 100 us is the budget.", operator_metrics.DECISION
                ),
                _quantiles(
                    "Age of decisions",
                    "Of a model at a random moment. p99 above 5 s: too little CPU.",
                    operator_metrics.DECISION_AGE,
                ),
                Panel(
                    "Questions of HPAs",
                    "By HTTP status. 404 is a value that is missing, on which the HPA holds.",
                    (Query(operators_rate(operator_metrics.VALUES_ASKED, "code"), "{{code}}"),),
                    "reqps",
                ),
                Panel(
                    "Agents' streams",
                    "Open ones: each balancer pod has one to every replica.",
                    (Query(operators(operator_metrics.STREAMS), "{{instance}}"),),
                ),
                Panel(
                    "Agents' records",
                    "By what became of them. garbage or foreign: a balancer of another version, or somebody who tries.",
                    (Query(operators_rate(operator_metrics.RECORDS, "result"), "{{result}}"),),
                    "ops",
                ),
                Panel(
                    "Streams asked for, and values that can't be true",
                    "By what became of them; absurd values count as unknown.",
                    (
                        Query(operators_rate(operator_metrics.LOGINS, "result"), "stream {{result}}"),
                        Query(operators_rate(operator_metrics.ABSURD_VALUES), "absurd values"),
                    ),
                    "ops",
                ),
            ),
        ),
        PanelRow(
            "What it costs",
            (
                Panel(
                    "Memory",
                    "Resident. Expected are 130 MiB and 0.8 MiB for each model with two balancers; the container's limit is half as much again.",
                    (
                        Query(operators(operator_metrics.MEMORY), "{{instance}}"),
                        Query(operators(operator_metrics.PEAK_MEMORY), "{{instance}} peak"),
                    ),
                    "bytes",
                    width=12,
                ),
                Panel(
                    "CPU",
                    "Cores.",
                    (Query(operators_rate(operator_metrics.CPU, "instance"), "{{instance}}"),),
                    width=12,
                ),
            ),
        ),
    ),
    (_JOB,),
)
