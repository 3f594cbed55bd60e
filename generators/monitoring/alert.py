"""Definition of an alert, its thresholds, and its rule for Prometheus.

An alert is about one model or about the operator. Its runbook in docs/runbooks has the alert's name. Expressions and
texts contain placeholders that the chart replaces (`PLACEHOLDERS`): the operator's scrape job, its namespace, the
release. The labels `namespace` and `model_deployment` identify a model, also in the site's own panels and rules. If one
Prometheus has the series of several clusters, each expression is evaluated for each value of the label `cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

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
MAX_ROLLOUT_S: Final = 86_400
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


MODEL: Final = "{{ $labels.namespace }}/{{ $labels.model_deployment }}"
EXPLAIN: Final = "kubectl halcyon explain {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
DIAGNOSE: Final = "kubectl halcyon diagnose {{ $labels.model_deployment }} -n {{ $labels.namespace }}"
LOG: Final = "kubectl -n __NAMESPACE__ logs -l app.kubernetes.io/name=halcyon --tail=-1"
"""Command that reads the logs of all operator pods. With `deployment/NAME`, kubectl would read those of only one
pod."""


def field_of(path: str) -> str:
    """Return a command that prints one field of the model's status, by its JSONPath."""
    return (
        "kubectl get mdep {{ $labels.model_deployment }} -n {{ $labels.namespace }} "
        f"-o jsonpath='{{.status.{path}}}'"
    )


def message_of(condition: str) -> str:
    """Return a command that prints the message of one of the model's conditions."""
    return field_of(f'conditions[?(@.type=="{condition}")].message')


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
