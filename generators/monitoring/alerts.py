"""The alerts: which there are, and the rules that Prometheus takes.

An alert is about one model, or about the operator. Its page in docs/runbooks has its name. In expressions and texts stand words that
the chart replaces (`PLACES`): the job that the operator is scraped by, its namespace, the release. A panel or a rule of the site's own
finds the same series by the same labels: `namespace` and `model_deployment`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from generators.monitoring import triton_metrics
from halcyon.monitoring import operator_metrics, per_model_metrics
from halcyon.monitoring.agent_metrics import named
from halcyon.monitoring.metric import Metric

PLACES: Final = ("__OPERATOR__", "__JOB__", "__NAMESPACE__", "__NAME__", "__REPLICAS__", "__RUNBOOKS__")
"""Matchers of the operator's own series, and of its models'; namespace and name of the release; how many replicas; where pages are."""
SLOW_START_S: Final = 300
ERRORS: Final = 0.05
IDLE: Final = 0.05
FULL: Final = 0.8

Severity = Literal["critical", "warning", "info"]
"""critical: requests fail, or are about to. warning: look today. info: money."""


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    after: str
    """How long it must have held."""
    severity: Severity
    summary: str
    description: str
    watches: str
    """What it is made from: a query that has data in every cluster where the alert can be raised, now or not."""


def _models(metric: Metric, matchers: str = "") -> str:
    """The series of a metric of models, one per model, whatever else its labels tell."""
    inner = f"__JOB__,{matchers}" if matchers else "__JOB__"
    return f"max by ({per_model_metrics.BY}) ({metric.name}{{{inner}}})"


def _rate(metric: Metric, matchers: str = "") -> str:
    return f"sum by ({per_model_metrics.BY}) (rate({metric.name}{f'{{{matchers}}}' if matchers else ''}[5m]))"


def _of_condition(matchers: str) -> str:
    return f"{_models(per_model_metrics.CONDITION, matchers)} > 0"


_AT_MAX: Final = _models(per_model_metrics.LIMITED, 'limit="max"')
_ON_MODEL: Final = f"on ({per_model_metrics.BY})"
_REQUESTS: Final = named("requests_total")
_FAILURES: Final = _rate(triton_metrics.FAILURE, 'reason!="CANCELED"')
_THE_MODEL: Final = "{{ $labels.namespace }}/{{ $labels.model_deployment }}"
_EXPLAIN: Final = "kubectl halcyon explain {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
_DIAGNOSE: Final = "kubectl halcyon diagnose {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
_LOG: Final = "kubectl -n __NAMESPACE__ logs deployment/__NAME__"

OF_MODELS: Final = (
    Alert(
        "HalcyonModelNotReady",
        _of_condition('type="Ready",status!="True"'),
        "10m",
        "critical",
        f"{_THE_MODEL} has not been ready for 10 minutes: its requests fail or wait.",
        f"What keeps it: {_DIAGNOSE}",
        _models(per_model_metrics.CONDITION, 'type="Ready"'),
    ),
    Alert(
        "HalcyonModelLoadFailed",
        _of_condition('type="ModelLoaded",status="False"'),
        "1m",
        "critical",
        f"Triton can't load {_THE_MODEL}.",
        "Triton's own words: kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        "-o jsonpath='{.status.model.error}'",
        _models(per_model_metrics.CONDITION, 'type="ModelLoaded"'),
    ),
    Alert(
        "HalcyonModelAtMax",
        f"({_AT_MAX} == 1)\n"
        f"and {_ON_MODEL} ({_models(per_model_metrics.QUEUE)}\n"
        f"  > {_ON_MODEL} {_models(per_model_metrics.QUEUE_TARGET)} * {_ON_MODEL} clamp_min({_models(per_model_metrics.READY)}, 1))",
        "15m",
        "warning",
        f"{_THE_MODEL} has as many replicas as it may have, and requests wait.",
        f"What it would have: {_EXPLAIN}",
        f"{_models(per_model_metrics.QUEUE)} and {_ON_MODEL} {_models(per_model_metrics.MAX)}",
    ),
    Alert(
        "HalcyonMetricMissing",
        f"max by ({per_model_metrics.BY}, signal) ({per_model_metrics.SIGNAL_MISSING.name}{{__JOB__}}) == 1",
        "5m",
        "warning",
        f"{_THE_MODEL}: {{{{ $labels.signal }}}} has been missing for 5 minutes, so its count may hold where it should move.",
        f"Why it is missing: {_EXPLAIN}",
        _models(per_model_metrics.SIGNAL_MISSING),
    ),
    Alert(
        "HalcyonErrorRatioHigh",
        f"{_FAILURES}\n  / ({_rate(triton_metrics.SUCCESS)} + {_FAILURES}) > {ERRORS}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_THE_MODEL} fail in Triton.",
        f"By reason: the dashboard Halcyon / Model; then {_DIAGNOSE}",
        f"{_FAILURES}\n  / ({_rate(triton_metrics.SUCCESS)} + {_FAILURES})",
    ),
    Alert(
        "HalcyonRequestsRefused",
        f"({_rate(named('refused_total'))} + {_rate(named('errors_total'))})\n  / {_rate(_REQUESTS)} > {ERRORS}",
        "5m",
        "critical",
        f"{{{{ $value | humanizePercentage }}}} of the requests of {_THE_MODEL} are refused or lost by its balancers.",
        f"Whether more replicas are wanted, and what keeps them: {_EXPLAIN}",
        f"({_rate(named('refused_total'))} + {_rate(named('errors_total'))})\n  / {_rate(_REQUESTS)}",
    ),
    Alert(
        "HalcyonBalancerTrouble",
        f"max by ({per_model_metrics.BY}) ({named('trouble').name}) == 1",
        "15m",
        "warning",
        f"A balancer of {_THE_MODEL} does not do all that it was asked to, or soon will not: a certificate that expires, a Secret that lacks.",
        "What it is: kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        "-o jsonpath='{.status.conditions[?(@.type==\"BalancerReady\")].message}'",
        f"max by ({per_model_metrics.BY}) ({named('trouble').name})",
    ),
    Alert(
        "HalcyonAutoscalerConflict",
        _of_condition('type="AutoscalerConflict",status="True"'),
        "5m",
        "warning",
        f"Somebody else writes the count of {_THE_MODEL}; Halcyon has stepped back.",
        f"Who it is: {_EXPLAIN}",
        _models(per_model_metrics.CONDITION, 'type="ScalingActive"'),
    ),
    Alert(
        "HalcyonRolloutBlocked",
        _of_condition('type=~"Reconciling|Stalled",reason=~"RolloutBlocked|ProgressDeadlineExceeded"'),
        "10m",
        "warning",
        f"The new revision of {_THE_MODEL} does not get on; the old one serves.",
        f"What is missing: {_DIAGNOSE}",
        _models(per_model_metrics.CONDITION),
    ),
    Alert(
        "HalcyonColdStartSlow",
        f"({_models(per_model_metrics.START)} > {SLOW_START_S})\nand {_ON_MODEL} (time() - {_models(per_model_metrics.START_TIME)} < 3600)",
        "0m",
        "warning",
        f"A server of {_THE_MODEL} took {{{{ $value | humanizeDuration }}}} to become ready; {SLOW_START_S} s is the limit.",
        "Where the time goes: kubectl describe pod, of its events: pull, fetch, load.",
        f"{_models(per_model_metrics.START)} and {_ON_MODEL} {_models(per_model_metrics.START_TIME)}",
    ),
    Alert(
        "HalcyonGPUIdle",
        f"({_models(per_model_metrics.GPU_UTILIZATION)} < {IDLE})\nand {_ON_MODEL} ({_models(per_model_metrics.GPUS)} > 0)",
        "1h",
        "info",
        f"GPUs of {_THE_MODEL} have been idle for an hour.",
        "Lower spec.scaling.minReplicas, or 0 and idleAfter: the model then starts with its first request.",
        f"{_models(per_model_metrics.GPU_UTILIZATION)} and {_ON_MODEL} {_models(per_model_metrics.GPUS)}",
    ),
)
_UP: Final = "count(up{__OPERATOR__} == 1)"
_FAILED: Final = f'sum(increase({operator_metrics.RECONCILES.name}{{result="error",__OPERATOR__}}[15m]))'
_UNANSWERED: Final = f'sum(increase({operator_metrics.VALUES_ASKED.name}{{code=~"5..",__OPERATOR__}}[10m]))'
OF_OPERATOR: Final = (
    Alert(
        "HalcyonOperatorDown",
        f"({_UP} or vector(0)) < 1",
        "5m",
        "critical",
        "No replica of Halcyon can be scraped: nothing is scaled or changed. What runs keeps serving; models at zero don't wake.",
        "See why: kubectl -n __NAMESPACE__ describe deployment/__NAME__",
        _UP,
    ),
    Alert(
        "HalcyonNobodyLeads",
        f"sum({operator_metrics.LEADING.name}{{__OPERATOR__}}) < 1",
        "5m",
        "critical",
        "No replica of Halcyon leads, so nothing is scaled or changed; what runs keeps serving.",
        f"See why: kubectl -n __NAMESPACE__ get pods,lease; {_LOG}",
        f"sum({operator_metrics.LEADING.name}{{__OPERATOR__}})",
    ),
    Alert(
        "HalcyonReplicaMissing",
        f"{_UP} < __REPLICAS__",
        "15m",
        "warning",
        "Fewer than __REPLICAS__ replicas of Halcyon can be scraped; a failure of the last one stops all scaling.",
        "See why: kubectl -n __NAMESPACE__ describe deployment/__NAME__",
        _UP,
    ),
    Alert(
        "HalcyonOperatorMemoryHigh",
        f"max by (instance) ({operator_metrics.MEMORY.name}{{__OPERATOR__}}\n"
        f"  / on (instance) {operator_metrics.MEMORY_LIMIT.name}{{__OPERATOR__}}) > {FULL}",
        "5m",
        "warning",
        "Halcyon at {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory limit; at 100 % the kernel ends it.",
        "Give expectedModels of the chart the number of models that there are: kubectl get modeldeployments -A --no-headers | wc -l",
        f"{operator_metrics.MEMORY.name}{{__OPERATOR__}}",
    ),
    Alert(
        "HalcyonReconcilesFail",
        f"{_FAILED} > 5",
        "15m",
        "warning",
        "Reconciles of ModelDeployments keep failing.",
        f"kubectl get modeldeployments -A names those that aren't ready; the log has the errors: {_LOG}",
        _FAILED,
    ),
    Alert(
        "HalcyonRightsMissing",
        f"max by (group, resource, verb) ({operator_metrics.RIGHTS_MISSING.name}{{__OPERATOR__}}) == 1",
        "5m",
        "warning",
        "Halcyon may not {{ $labels.verb }} {{ $labels.resource }}: what needs it isn't done.",
        "Give its role the rules that the chart has: helm upgrade, or compare kubectl get clusterrole __NAME__ -o yaml",
        _UP,
    ),
    Alert(
        "HalcyonWorkWaits",
        f"max(min_over_time({operator_metrics.QUEUE_READY.name}{{__OPERATOR__}}[10m])\n"
        f"  * on (instance) {operator_metrics.LEADING.name}{{__OPERATOR__}}) > 0",
        "5m",
        "warning",
        "Halcyon has had work waiting for 10 minutes: changes of ModelDeployments reach their pods late.",
        f"See whether the API server is slow, or the operator short of CPU: {_LOG}",
        f"max({operator_metrics.QUEUE_READY.name}{{__OPERATOR__}} * on (instance) {operator_metrics.LEADING.name}{{__OPERATOR__}})",
    ),
    Alert(
        "HalcyonMetricsUnanswered",
        f"{_UNANSWERED} > 0",
        "10m",
        "warning",
        "Questions of HPAs are answered with errors, so they hold their counts.",
        "Ask as they do: kubectl get --raw /apis/external.metrics.k8s.io/v1beta1; then see the operator's log.",
        f"sum(increase({operator_metrics.VALUES_ASKED.name}{{__OPERATOR__}}[10m]))",
    ),
)
ALERTS: Final = (*OF_MODELS, *OF_OPERATOR)


def groups() -> list[dict[str, Any]]:
    """Groups of rules, as Prometheus and the PrometheusRule have them, with the words of `PLACES` in them."""
    named = (("models", OF_MODELS), ("operator", OF_OPERATOR))
    return [{"name": f"__NAME__.{name}", "rules": [rule(alert) for alert in alerts]} for name, alerts in named]


def rule(alert: Alert) -> dict[str, Any]:
    """One rule."""
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.after,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"__RUNBOOKS__/{alert.name}.md",
        },
    }
