"""Alerts about the operator itself. Out of scope: alerts about models (`model_alerts`)."""

from __future__ import annotations

from typing import Final

from generators.monitoring.alert import LOG, MAX_MEMORY_RATIO, Alert
from halcyon.monitoring import operator_metrics
from halcyon.monitoring.metric import Metric

_BY_CLUSTER: Final = "by (cluster)"
_ON_INSTANCE: Final = "on (cluster, instance)"
MAX_FAILED_QUERIES: Final = 0.05
"""Share of the HPAs' metric queries above which HalcyonMetricsAPIErrors fires. Single errors, for example at a start, cost an HPA one
of its rounds every 15 s."""
_OLD_S: Final = "60.0"
"""Age of a decision in seconds, as the bound of a bucket, that no model reaches: each gets a decision at least every 4.5 s."""


def _replicas(expression: str) -> str:
    """Return a query with one series per replica of the operator.

    A store may have the series of several instances of Prometheus that scrape the same replica. Without this, a
    division or a product of two such series is an error, and the alert can't fire.
    """
    return f"max by (cluster, instance) ({expression})"


def _of(metric: Metric, matchers: str = "", *, end: str = "") -> str:
    inner = f"{matchers},__OPERATOR__" if matchers else "__OPERATOR__"
    return f"{metric.name}{end}{{{inner}}}"


def _total(metric: Metric, window: str, matchers: str = "") -> str:
    return f"sum {_BY_CLUSTER} (increase({_of(metric, matchers)}[{window}]))"


_LEADER: Final = _replicas(_of(operator_metrics.LEADER))
_UP: Final = f"count {_BY_CLUSTER} ({_replicas('up{__OPERATOR__} == 1')})"
_SCRAPED: Final = f"sum {_BY_CLUSTER} (up{{__OPERATOR__}})"
_FAILED: Final = _total(operator_metrics.RECONCILES, "5m", 'result="error"')
_QUERIES: Final = _total(operator_metrics.METRIC_REQUESTS, "5m")
_FAILED_QUERIES: Final = f"""{_total(operator_metrics.METRIC_REQUESTS, "5m", 'code=~"5.."')}\n  / {_QUERIES}"""
_IS_YOUNG: Final = f'le="{_OLD_S}"'
_AGES: Final = f"rate({_of(operator_metrics.DECISION_AGE, end='_count')}[5m])"
_YOUNG: Final = f"rate({_of(operator_metrics.DECISION_AGE, _IS_YOUNG, end='_bucket')}[5m])"
_STALE_DECISIONS: Final = (
    f"sum {_BY_CLUSTER} (({_replicas(_AGES)}\n  - {_ON_INSTANCE} {_replicas(_YOUNG)})\n  * {_ON_INSTANCE} {_LEADER})"
)
"""Query for the number of models whose decision is old: each second of each model counts as one observation of the histogram."""
OPERATOR_ALERTS: Final = (
    Alert(
        "HalcyonOperatorDown",
        # `on ()`: the zero is used only if there is no series of any cluster.
        f"({_SCRAPED} or on () vector(0)) < 1",
        "5m",
        "critical",
        "No replica of Halcyon can be scraped, so no model is scaled or changed.",
        "Critical: clients of models at zero replicas get no response, because these models don't wake up. Running models keep "
        "serving. Find the cause: kubectl -n __NAMESPACE__ describe deployment/__NAME__",
        _UP,
    ),
    Alert(
        "HalcyonNoLeader",
        f"sum {_BY_CLUSTER} ({operator_metrics.LEADER.name}{{__OPERATOR__}}) < 1",
        "5m",
        "critical",
        "No replica of Halcyon is the leader, so no model is scaled or changed.",
        "Critical: clients of models at zero replicas get no response, and those of all other models get slow ones if the load rises. "
        f"Running models keep serving. Find the cause: kubectl -n __NAMESPACE__ get pods,lease; {LOG}",
        f"sum {_BY_CLUSTER} ({operator_metrics.LEADER.name}{{__OPERATOR__}})",
    ),
    Alert(
        "HalcyonReplicaMissing",
        f"{_UP} < __REPLICAS__",
        "15m",
        "warning",
        "Fewer than __REPLICAS__ replicas of Halcyon can be scraped.",
        "Warning: no client is affected, but all scaling stops if the last replica fails too. "
        "Find the cause: kubectl -n __NAMESPACE__ describe deployment/__NAME__",
        _UP,
    ),
    Alert(
        "HalcyonOperatorMemoryHigh",
        f"{_replicas(_of(operator_metrics.MEMORY))}\n"
        f"  / {_ON_INSTANCE} {_replicas(_of(operator_metrics.MEMORY_LIMIT))} > {MAX_MEMORY_RATIO}",
        "5m",
        "warning",
        "Halcyon at {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory limit.",
        "Warning: no client is affected yet, but at 100 % the kernel kills the operator, and scaling stops until it has restarted. "
        "Set the chart's expectedModels to the number of models: kubectl get modeldeployments -A --no-headers | wc -l",
        f"{operator_metrics.MEMORY.name}{{__OPERATOR__}}",
    ),
    Alert(
        "HalcyonReconcileErrors",
        f"{_FAILED} > 1",
        "15m",
        "warning",
        "Reconciles of ModelDeployments fail repeatedly.",
        "Warning: changes by the owners of the affected models have no effect; their clients are still served. "
        f"kubectl get modeldeployments -A shows which models aren't ready. Find the errors in the log: {LOG}",
        _FAILED,
    ),
    Alert(
        "HalcyonPermissionsMissing",
        f"max by (cluster, group, resource, verb) ({operator_metrics.PERMISSIONS_MISSING.name}{{__OPERATOR__}}) == 1",
        "5m",
        "warning",
        "Halcyon lacks the permission to {{ $labels.verb }} {{ $labels.resource }}.",
        "Warning: running models keep serving, but what needs the permission isn't done: a model may not be scaled or repaired. "
        "Restore the chart's rules: run helm upgrade, or compare them with "
        "kubectl get clusterroles,roles -A -l app.kubernetes.io/name=halcyon -o yaml",
        _UP,
    ),
    Alert(
        "HalcyonObjectsMalformed",
        f"max by (cluster, kind) ({_of(operator_metrics.OBJECTS_MALFORMED)}) > 0",
        "15m",
        "warning",
        "{{ $value }} objects of the kind {{ $labels.kind }} have an unexpected form, so Halcyon skips them.",
        "Warning: running models keep serving, but a skipped ModelDeployment is not scaled or changed. "
        f"Find the objects in the log (an object has an unexpected form): {LOG}",
        _UP,
    ),
    Alert(
        "HalcyonReconcileBacklog",
        f"max {_BY_CLUSTER} ({_replicas(f'min_over_time({_of(operator_metrics.QUEUE_READY)}[10m])')}\n"
        f"  * {_ON_INSTANCE} {_LEADER}) > 0",
        "5m",
        "warning",
        "ModelDeployments have been waiting for a worker of Halcyon for 10 minutes.",
        "Warning: changes by the owners of models take effect late; scaling is not affected. "
        f"Check whether the API server is slow, or the operator has too little CPU: {LOG}",
        f"max {_BY_CLUSTER} ({_replicas(_of(operator_metrics.QUEUE_READY))} * {_ON_INSTANCE} {_LEADER})",
    ),
    Alert(
        "HalcyonDecisionsStale",
        f"{_STALE_DECISIONS} > 0.5",
        "10m",
        "critical",
        "The scaling decisions of {{ $value | humanize }} models are older than a minute.",
        "Critical: these models keep their replicas, so their clients get slow or rejected responses if the load rises, and models at zero "
        f"replicas don't wake up. Find the models and the errors in the log: {LOG}",
        f"sum {_BY_CLUSTER} ({_AGES})",
    ),
    Alert(
        "HalcyonMetricsAPIErrors",
        f"{_FAILED_QUERIES} > {MAX_FAILED_QUERIES}",
        "10m",
        "warning",
        "Halcyon answers {{ $value | humanizePercentage }} of the metric queries from HPAs with errors, so these HPAs keep their replicas.",
        "Warning: clients of models with the actuator HPA get slow responses if the load rises beyond what the fast scale-up path adds. "
        "Send the same query: kubectl get --raw /apis/external.metrics.k8s.io/v1beta1; then read the operator's log.",
        _QUERIES,
    ),
)
