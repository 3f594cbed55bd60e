"""Alerts, and their rules for Prometheus.

An alert is about one model or about the operator. Its runbook in docs/runbooks has the alert's name. Expressions and
texts contain placeholders that the chart replaces (`PLACEHOLDERS`): the operator's scrape job, its namespace, the
release. The labels `namespace` and `model_deployment` identify a model, also in the site's own panels and rules. If one
Prometheus has the series of several clusters, each expression is evaluated for each value of the label `cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from generators.monitoring import triton_metrics
from generators.monitoring.promql import BY
from halcyon.monitoring import operator_metrics, per_model_metrics
from halcyon.monitoring.agent_metrics import named
from halcyon.monitoring.metric import Metric

THRESHOLDS: Final = {
    "startSeconds": 300,
    "errorRatio": 0.05,
    "latencyRatio": 0.05,
    "idleGpuRatio": 0.05,
    "memoryRatio": 0.8,
}
"""Thresholds, by the key in the chart's `monitoring.prometheusRule.thresholds`, with the chart's defaults."""
THRESHOLD_PLACEHOLDERS: Final = {
    key: f"__{''.join(f'_{c}' if c.isupper() else c for c in key).upper()}__" for key in THRESHOLDS
}
"""Placeholder of each threshold, for example `__START_SECONDS__`."""
PLACEHOLDERS: Final = (
    *("__OPERATOR__", "__JOB__", "__NAMESPACE__", "__NAME__", "__REPLICAS__", "__RUNBOOKS__"),
    *THRESHOLD_PLACEHOLDERS.values(),
)
"""Placeholders, in this order: matchers of the operator's series; matchers of the series about models that the operator
exports; namespace, name and replicas of the release; base URL of the runbooks; the thresholds."""
MAX_START: Final = THRESHOLD_PLACEHOLDERS["startSeconds"]
MAX_ERROR_RATIO: Final = THRESHOLD_PLACEHOLDERS["errorRatio"]
MAX_LATENCY_RATIO: Final = THRESHOLD_PLACEHOLDERS["latencyRatio"]
MIN_GPU_UTILIZATION: Final = THRESHOLD_PLACEHOLDERS["idleGpuRatio"]
MAX_MEMORY_RATIO: Final = THRESHOLD_PLACEHOLDERS["memoryRatio"]
MAX_CONNECTIONS_RATIO: Final = 0.75
KEEP_FIRING: Final = "5m"
"""Time for which an alert about a model keeps firing after its series have ended. Only the leader exports these series,
so they end when the leader changes, until Prometheus has scraped the new leader."""

Severity = Literal["critical", "warning", "info"]
"""Severity of an alert. critical: requests fail or will fail soon. warning: fix it within a day. info: only costs are
affected, not users."""


@dataclass(frozen=True)
class Alert:
    """Alert about one model or about the operator."""

    name: str
    expression: str
    after: str
    """Time for which the expression must be true before the alert fires."""
    severity: Severity
    summary: str
    description: str
    """Description for the person on call: who is affected, the reason for the severity, and the first command to
    run."""
    watches: str
    """Query for the data that the alert evaluates. It returns data in every cluster in which the alert can fire, even
    while the alert isn't firing."""


def _models(metric: Metric, matchers: str = "") -> str:
    """Return a query that has one series per model, without the other labels of the metric."""
    inner = f"__JOB__,{matchers}" if matchers else "__JOB__"
    return f"max by ({BY}) ({metric.name}{{{inner}}})"


def _rate(metric: Metric, matchers: str = "", *by: str) -> str:
    return f"sum by ({', '.join((BY, *by))}) (rate({metric.name}{f'{{{matchers}}}' if matchers else ''}[5m]))"


def _condition(matchers: str) -> str:
    return f"{_models(per_model_metrics.CONDITION, matchers)} > 0"


_BY_CLUSTER: Final = "by (cluster)"
_AT_MAX: Final = _models(per_model_metrics.LIMITED, 'limit="max"')
_AT_OTHER_LIMIT: Final = _models(per_model_metrics.LIMITED, 'limit=~"quota|budget"')
_ON_MODEL: Final = f"on ({BY})"
_REQUESTS: Final = named("requests_total")
_UNSERVED: Final = (
    f"({_rate(named('rejected_total'))} + {_rate(named('errors_total'))}\n"
    f"  + ({_rate(named('server_rejected_total'))} or 0 * {_rate(_REQUESTS)}))"
)
"""Query for the requests per second that the model didn't answer. If agents of an earlier version don't count requests
that servers reject, these count as 0."""
_IS_READY: Final = 'type="Ready",status="True"'
_NOT_READY: Final = 'type="Ready",status!="True"'
_NOT_LOADED: Final = 'type="ModelLoaded",status="False"'
_BLOCKED: Final = (
    "RolloutBlocked|ProgressDeadlineExceeded|LoadFailed|ModelConfigInvalid|ModelSourceNotFound|ModelDownloadFailed"
)
"""Condition reasons that explain why a new revision does not serve."""
_STUCK: Final = f'type=~"Reconciling|Stalled",reason=~"{_BLOCKED}"'
# Other Triton servers in the same Prometheus have no such label, and are none of Halcyon's.
_OURS: Final = 'model_deployment!=""'
_SUCCESSES: Final = _rate(triton_metrics.SUCCESS, _OURS, "model")
_FAILURES: Final = _rate(triton_metrics.FAILURE, f'{_OURS},reason!="CANCELED"', "model")
# By Triton's label `model`: in a sum, the steps of an ensemble and the models that a Python model calls would hide its failures.
_ERROR_RATIO: Final = f"max by ({BY}) ({_FAILURES}\n  / ({_SUCCESSES} + {_FAILURES}))"
_BUSY: Final = _rate(per_model_metrics.GPU_SECONDS, '__JOB__,state="busy"')
_MEASURED: Final = _rate(per_model_metrics.GPU_SECONDS, '__JOB__,state=~"busy|idle"')
_BUSY_SHARE: Final = f"{_BUSY}\n  / {_MEASURED}"
"""Query for the mean utilisation of a model's GPUs, 0 to 1, over the pods that report it; NaN if none does."""
_DURATIONS: Final = named("request_duration_seconds").name


def _late(window: str) -> str:
    """Return a query that has a value if more requests than allowed missed the objective in the window."""
    buckets = f"sum by ({BY}, le) (rate({_DURATIONS}_bucket[{window}]))"
    slow = f"histogram_quantile(1 - {MAX_LATENCY_RATIO}, {buckets})"
    # Not `>`: if the quantile is above the highest bound of the histogram, this bound is returned.
    return f"{slow}\n  >= {_ON_MODEL} {_models(per_model_metrics.LATENCY_TARGET)}"


_MODEL: Final = "{{ $labels.namespace }}/{{ $labels.model_deployment }}"
_EXPLAIN: Final = "kubectl halcyon explain {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
_DIAGNOSE: Final = "kubectl halcyon diagnose {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
_LOG: Final = "kubectl -n __NAMESPACE__ logs -l app.kubernetes.io/name=halcyon --tail=-1"
"""Command that reads the logs of all operator pods. With `deployment/NAME`, kubectl would read those of only one
pod."""

MODEL_ALERTS: Final = (
    Alert(
        "HalcyonModelNotReady",
        _condition(_NOT_READY),
        "10m",
        "critical",
        f"{_MODEL} has not been ready for 10 minutes.",
        f"Critical: the requests of its clients fail, or wait in the balancer until they time out. Find the cause: {_DIAGNOSE}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonSpecRejected",
        _condition('type="Accepted",status="False"'),
        "10m",
        "warning",
        f"The spec of {_MODEL} has not been accepted for 10 minutes.",
        "Warning: its owner's change has no effect. Clients are served by the last accepted spec, if there is one. "
        "Show the reason: kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        "-o jsonpath='{.status.conditions[?(@.type==\"Accepted\")].message}'",
        _models(per_model_metrics.CONDITION, 'type="Accepted"'),
    ),
    Alert(
        "HalcyonModelLoadFailed",
        f"{_condition(_NOT_LOADED)}\nand {_ON_MODEL} {_models(per_model_metrics.CONDITION, _NOT_READY)}",
        "1m",
        "critical",
        f"Triton can't load {_MODEL}, and no older revision serves.",
        "Critical: the requests of its clients fail. "
        "Show Triton's error: kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        "-o jsonpath='{.status.model.error}'",
        _models(per_model_metrics.CONDITION, 'type="ModelLoaded"'),
    ),
    Alert(
        "HalcyonModelAtMax",
        f"({_AT_MAX} == 1)\n"
        # Not the maximum of the spec: a schedule may set a lower one. Desired replicas are not in force while scaling is paused.
        f"and {_ON_MODEL} ({_models(per_model_metrics.SPEC_REPLICAS)} >= {_ON_MODEL} {_models(per_model_metrics.DESIRED)})\n"
        f"unless {_ON_MODEL} {_AT_OTHER_LIMIT}\n"
        f"and {_ON_MODEL} ({_models(per_model_metrics.QUEUE)}\n"
        f"  > {_ON_MODEL} {_models(per_model_metrics.QUEUE_TARGET)} * {_ON_MODEL} clamp_min({_models(per_model_metrics.READY)}, 1))",
        "15m",
        "warning",
        f"{_MODEL} needs more replicas than its maximum, and its queue is above the target.",
        f"Warning: its clients get slow responses; requests are rejected once the queue is full. Show the desired replicas: {_EXPLAIN}",
        f"{_models(per_model_metrics.QUEUE)} and {_ON_MODEL} {_models(per_model_metrics.DESIRED)}",
    ),
    Alert(
        "HalcyonMetricMissing",
        f"max by ({BY}, signal) ({per_model_metrics.SIGNAL_MISSING.name}{{__JOB__}}) == 1",
        "5m",
        "warning",
        f"The signal {{{{ $labels.signal }}}} of {_MODEL} has been missing for 5 minutes.",
        "Warning: the model may not scale up, so its clients get slow or rejected requests if the load rises. "
        f"Find the cause: {_EXPLAIN}",
        _models(per_model_metrics.SIGNAL_MISSING),
    ),
    Alert(
        "HalcyonErrorRatioHigh",
        f"{_ERROR_RATIO} > {MAX_ERROR_RATIO}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests to {_MODEL}, or to another model in its pods, fail in Triton.",
        "Critical: its clients get errors. The dashboard Halcyon / Model shows the failures by reason. "
        f"Find the cause: {_DIAGNOSE}",
        _ERROR_RATIO,
    ),
    Alert(
        "HalcyonRequestsRejected",
        f"{_UNSERVED}\n  / {_rate(_REQUESTS)} > {MAX_ERROR_RATIO}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_MODEL} are rejected by its balancers or servers, or lost.",
        "Critical: its clients get errors (429, 503). "
        f"Show whether it needs more replicas, and what prevents them: {_EXPLAIN}",
        f"{_UNSERVED}\n  / {_rate(_REQUESTS)}",
    ),
    Alert(
        "HalcyonLatencyObjectiveMissed",
        f"{_late('5m')}\nand {_ON_MODEL} {_late('1h')}",
        "5m",
        "warning",
        f"{_MODEL} misses its latency objective: a share above {MAX_LATENCY_RATIO} of the responses takes longer; the slowest of the others take {{{{ $value | humanizeDuration }}}}.",
        "Warning: its clients get late responses, for an hour and still. Show whether it needs more replicas, and what prevents "
        f"them: {_EXPLAIN}",
        f"histogram_quantile(1 - {MAX_LATENCY_RATIO}, sum by ({BY}, le) (rate({_DURATIONS}_bucket[5m])))\n"
        f"and {_ON_MODEL} {_models(per_model_metrics.LATENCY_TARGET)}",
    ),
    Alert(
        "HalcyonBalancerDegraded",
        f"max by ({BY}) ({named('degraded').name}) == 1",
        "15m",
        "warning",
        f"A balancer of {_MODEL} is degraded, or soon will be: for example, a certificate expires, or a Secret is missing.",
        "Warning: requests still succeed with the last valid configuration, but its clients can't connect once a certificate "
        "has expired. Show the reason: kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        "-o jsonpath='{.status.conditions[?(@.type==\"BalancerReady\")].message}'",
        f"max by ({BY}) ({named('degraded').name})",
    ),
    Alert(
        "HalcyonBalancerCrowded",
        f"max by ({BY}) ({named('connections_used_ratio').name}) > {MAX_CONNECTIONS_RATIO}",
        "5m",
        "warning",
        f"{{{{ $value | humanizePercentage }}}} of the connections of a balancer of {_MODEL} are in use.",
        "Warning: new connections of the sources with the most are closed. The balancer stays in its Service, because its clients would "
        f"only move to the next one. Show whether it has enough balancers: {_DIAGNOSE}",
        f"max by ({BY}) ({named('connections_used_ratio').name})",
    ),
    Alert(
        "HalcyonAutoscalerConflict",
        _condition('type="AutoscalerConflict",status="True"'),
        "5m",
        "warning",
        f"Another autoscaler, user or tool changes the replicas of {_MODEL}; Halcyon has stopped scaling it.",
        "Warning: its clients are affected only if the other writer keeps too few replicas. "
        f"Show the other writer: {_EXPLAIN}",
        _models(per_model_metrics.CONDITION, 'type="ScalingActive"'),
    ),
    Alert(
        "HalcyonRolloutBlocked",
        # A model that isn't ready has no old revision that serves: HalcyonModelNotReady fires.
        f"{_condition(_STUCK)}\nand {_ON_MODEL} {_models(per_model_metrics.CONDITION, _IS_READY)}",
        "10m",
        "warning",
        f"The rollout of the new revision of {_MODEL} does not progress.",
        f"Warning: its owner's change has no effect; clients are still served by the old revision. Find the cause: {_DIAGNOSE}",
        _models(per_model_metrics.CONDITION),
    ),
    Alert(
        "HalcyonColdStartSlow",
        f"({_models(per_model_metrics.START)} > {MAX_START})\nand {_ON_MODEL} (time() - {_models(per_model_metrics.START_TIME)} < 3600)",
        "0m",
        "warning",
        f"A server pod of {_MODEL} took {{{{ $value | humanizeDuration }}}} to become ready; the limit is {MAX_START} s.",
        "Warning: its clients wait that long for the first response at zero replicas, and for new replicas when the load rises. "
        "Show how long the pull, the fetch and the load took: kubectl -n {{ $labels.namespace }} describe pod POD",
        f"{_models(per_model_metrics.START)} and {_ON_MODEL} {_models(per_model_metrics.START_TIME)}",
    ),
    Alert(
        "HalcyonGPUIdle",
        # Not halcyon_model_gpu_utilization_ratio, which models without spec.scaling don't have.
        f"({_BUSY_SHARE} < {MIN_GPU_UTILIZATION})\nand {_ON_MODEL} ({_models(per_model_metrics.GPUS)} > 0)",
        "1h",
        "info",
        f"The GPUs of {_MODEL} have been idle for an hour.",
        "Info: no client is affected, but the GPUs are paid for. Lower spec.scaling.minReplicas (spec.replicas if scaling is not set); with 0 and idleTimeout, the model "
        "releases its GPUs when idle and starts again with the next request.",
        f"{_BUSY_SHARE}\nand {_ON_MODEL} {_models(per_model_metrics.GPUS)}",
    ),
)
_UP: Final = f"count {_BY_CLUSTER} (up{{__OPERATOR__}} == 1)"
_SCRAPED: Final = f"sum {_BY_CLUSTER} (up{{__OPERATOR__}})"
_ON_INSTANCE: Final = "on (cluster, instance)"
_FAILED: Final = f'sum {_BY_CLUSTER} (increase({operator_metrics.RECONCILES.name}{{result="error",__OPERATOR__}}[15m]))'
_SERVER_ERRORS: Final = (
    f'sum {_BY_CLUSTER} (increase({operator_metrics.METRIC_REQUESTS.name}{{code=~"5..",__OPERATOR__}}[10m]))'
)
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
        f"Running models keep serving. Find the cause: kubectl -n __NAMESPACE__ get pods,lease; {_LOG}",
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
        f"max by (cluster, instance) ({operator_metrics.MEMORY.name}{{__OPERATOR__}}\n"
        f"  / {_ON_INSTANCE} {operator_metrics.MEMORY_LIMIT.name}{{__OPERATOR__}}) > {MAX_MEMORY_RATIO}",
        "5m",
        "warning",
        "Halcyon at {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory limit.",
        "Warning: no client is affected yet, but at 100 % the kernel kills the operator, and scaling stops until it has restarted. "
        "Set the chart's expectedModels to the number of models: kubectl get modeldeployments -A --no-headers | wc -l",
        f"{operator_metrics.MEMORY.name}{{__OPERATOR__}}",
    ),
    Alert(
        "HalcyonReconcileErrors",
        f"{_FAILED} > 5",
        "15m",
        "warning",
        "Reconciles of ModelDeployments fail repeatedly.",
        "Warning: changes by the owners of the affected models have no effect; their clients are still served. "
        f"kubectl get modeldeployments -A shows which models aren't ready. Find the errors in the log: {_LOG}",
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
        "HalcyonReconcileBacklog",
        f"max {_BY_CLUSTER} (min_over_time({operator_metrics.QUEUE_READY.name}{{__OPERATOR__}}[10m])\n"
        f"  * {_ON_INSTANCE} {operator_metrics.LEADER.name}{{__OPERATOR__}}) > 0",
        "5m",
        "warning",
        "ModelDeployments have been waiting for a worker of Halcyon for 10 minutes.",
        "Warning: changes by the owners of models take effect late; scaling is not affected. "
        f"Check whether the API server is slow, or the operator has too little CPU: {_LOG}",
        f"max {_BY_CLUSTER} ({operator_metrics.QUEUE_READY.name}{{__OPERATOR__}} * {_ON_INSTANCE} {operator_metrics.LEADER.name}{{__OPERATOR__}})",
    ),
    Alert(
        "HalcyonMetricsAPIErrors",
        f"{_SERVER_ERRORS} > 0",
        "10m",
        "warning",
        "Halcyon answers metric queries from HPAs with errors, so these HPAs keep their replicas.",
        "Warning: clients of models with the actuator HPA get slow responses if the load rises beyond what the fast scale-up path adds. "
        "Send the same query: kubectl get --raw /apis/external.metrics.k8s.io/v1beta1; then read the operator's log.",
        f"sum {_BY_CLUSTER} (increase({operator_metrics.METRIC_REQUESTS.name}{{__OPERATOR__}}[10m]))",
    ),
)
ALERTS: Final = (*MODEL_ALERTS, *OPERATOR_ALERTS)


def groups() -> list[dict[str, Any]]:
    """Return the rule groups of a PrometheusRule. Their texts contain the placeholders in `PLACEHOLDERS`."""
    named = (("models", MODEL_ALERTS), ("operator", OPERATOR_ALERTS))
    return [{"name": f"__NAME__.{name}", "rules": [rule(alert) for alert in alerts]} for name, alerts in named]


def rule(alert: Alert) -> dict[str, Any]:
    """Return the Prometheus rule for an alert."""
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.after,
        **({"keep_firing_for": KEEP_FIRING} if "__JOB__" in alert.expression else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"__RUNBOOKS__/{alert.name}.md",
        },
    }
