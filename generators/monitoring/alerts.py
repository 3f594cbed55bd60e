"""All alerts, and the file with their rules for Prometheus."""

from __future__ import annotations

from typing import Any, Final

from generators.monitoring.alert import rule
from generators.monitoring.model_alerts import MODEL_ALERTS
from generators.monitoring.operator_alerts import OPERATOR_ALERTS

ALERTS: Final = (*MODEL_ALERTS, *OPERATOR_ALERTS)


def groups() -> list[dict[str, Any]]:
    """Return the rule groups of a PrometheusRule. Their texts contain the placeholders in `PLACEHOLDERS`."""
    named = (("models", MODEL_ALERTS), ("operator", OPERATOR_ALERTS))
    return [{"name": f"__NAME__.{name}", "rules": [rule(alert) for alert in alerts]} for name, alerts in named]
