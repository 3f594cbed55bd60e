"""Each condition that needs a person has an alert, and the others have the reason why they have none."""

from __future__ import annotations

import re

import pytest

from generators.conditions_reference import REASONS
from generators.monitoring.alerts import ALERTS
from halcyon.api.conditions import Reason, Type

NOT_READY, MISSING = "HalcyonModelNotReady", "HalcyonServersMissing"
BLOCKED, ROUTES = "HalcyonRolloutBlocked", "HalcyonRoutesRejected"
GOOD = "this is how it should be"
BY_READY = f"while no server is ready, the condition Ready has this reason: {NOT_READY}"
CHOSEN = "the owner of the model has chosen this"
ADVICE = "requests are served as the spec says, and the status shows the advice"
SEEN: dict[Type, dict[Reason, str]] = {
    Type.READY: {Reason.READY: GOOD, Reason.SCALED_TO_ZERO: GOOD, Reason.UNKNOWN: NOT_READY},
    Type.ACCEPTED: {
        Reason.ACCEPTED: GOOD,
        **dict.fromkeys(sorted(set(REASONS[Type.ACCEPTED]) - {Reason.ACCEPTED}), "HalcyonSpecRejected"),
    },
    Type.MODEL_LOADED: {
        Reason.LOADED: GOOD,
        Reason.LOADING: BY_READY,
        Reason.UNKNOWN: BY_READY,
        **dict.fromkeys(
            (
                Reason.LOAD_FAILED,
                Reason.MODEL_CONFIG_INVALID,
                Reason.MODEL_SOURCE_NOT_FOUND,
                Reason.MODEL_DOWNLOAD_FAILED,
            ),
            "HalcyonModelLoadFailed",
        ),
    },
    Type.SERVERS_READY: {
        Reason.SERVERS_READY: GOOD,
        Reason.SCALED_TO_ZERO: GOOD,
        Reason.PARTIALLY_READY: f"pods may only be starting; {MISSING} counts those that can't",
        **dict.fromkeys(
            sorted(
                set(REASONS[Type.SERVERS_READY]) - {Reason.SERVERS_READY, Reason.SCALED_TO_ZERO, Reason.PARTIALLY_READY}
            ),
            BY_READY,
        ),
    },
    Type.BALANCER_READY: {
        Reason.BALANCER_READY: GOOD,
        Reason.NO_BALANCER: CHOSEN,
        Reason.BALANCER_NOT_READY: BY_READY,
        Reason.UNKNOWN: BY_READY,
        Reason.BALANCER_DEGRADED: "HalcyonBalancerDegraded is computed from the agents' own metric",
    },
    Type.ROUTES_ACCEPTED: {
        Reason.ROUTES_ACCEPTED: GOOD,
        **dict.fromkeys(sorted(set(REASONS[Type.ROUTES_ACCEPTED]) - {Reason.ROUTES_ACCEPTED}), ROUTES),
    },
    Type.SCALING_ACTIVE: {
        Reason.SCALING_ACTIVE: GOOD,
        Reason.FIXED_REPLICAS: CHOSEN,
        Reason.PAUSED: CHOSEN,
        Reason.RECOMMENDING: CHOSEN,
        Reason.SCALING_DISABLED: CHOSEN,
        Reason.HPA_INACTIVE: "HalcyonScalingInactive",
        Reason.METRICS_MISSING: "HalcyonMetricMissing names the signal",
        Reason.UNKNOWN: "HalcyonMetricMissing names the signal",
        Reason.EXTERNAL_AUTOSCALER: "the condition AutoscalerConflict is true too",
        Reason.EXTERNAL_WRITER: "the condition AutoscalerConflict is true too",
    },
    Type.OPERATOR_CONFLICT: {Reason.RELEASE_OVERLAP: "HalcyonOperatorConflict"},
    Type.AUTOSCALER_CONFLICT: dict.fromkeys(REASONS[Type.AUTOSCALER_CONFLICT], "HalcyonAutoscalerConflict"),
    Type.REQUESTS_FAILING: {Reason.BACKEND_ERRORS: "HalcyonPodRequestsFailing"},
    **{
        kind: dict.fromkeys(REASONS[kind], ADVICE)
        for kind in (
            Type.FIELD_IGNORED,
            Type.TIMEOUT_MISMATCH,
            Type.IMAGE_MISMATCH,
            Type.POLICY_WARNING,
            Type.RUNTIME_OUTDATED,
            Type.CAPACITY_CONTRADICTED,
        )
    },
    Type.RECONCILING: {
        Reason.PROGRESSING: "HalcyonRolloutLong fires after a day",
        Reason.CANARY_PAUSED: "HalcyonRolloutLong fires after a day",
        Reason.ROLLOUT_BLOCKED: BLOCKED,
        Reason.DEPLOYMENT_PAUSED: BLOCKED,
        Reason.WRITES_FAILING: "HalcyonReconcileErrors counts the failed writes",
    },
    Type.STALLED: dict.fromkeys(REASONS[Type.STALLED], BLOCKED),
}
"""For each reason of each type the alert that it causes, or why it causes none."""
UNKNOWN = {(Type.READY, Reason.UNKNOWN), (Type.ROUTES_ACCEPTED, Reason.ROUTES_PENDING)}
"""Reasons with the status Unknown, of those that cause an alert."""
POSITIVE = {Type.AUTOSCALER_CONFLICT, Type.OPERATOR_CONFLICT, Type.REQUESTS_FAILING, Type.RECONCILING, Type.STALLED}
"""Types whose status is True while something is wrong."""
BY_NAME = {alert.name: alert for alert in ALERTS}
CAUSES = [
    (kind, reason, alert) for kind, reasons in SEEN.items() for reason, alert in reasons.items() if alert in BY_NAME
]


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Return whether a series with these labels matches a PromQL selector."""
    results = []
    for name, operator, text in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selector):
        value = labels[name]
        is_equal = re.fullmatch(text, value) is not None if operator == "=~" else value == text
        results.append(is_equal != (operator == "!="))
    return all(results)


def test_every_reason_of_every_condition_has_an_alert_or_an_excuse() -> None:
    assert {kind: set(reasons) for kind, reasons in SEEN.items()} == {
        kind: set(reasons) for kind, reasons in REASONS.items()
    }


@pytest.mark.parametrize(("kind", "reason", "name"), CAUSES, ids=str)
def test_an_alert_selects_the_conditions_that_cause_it(kind: Type, reason: Reason, name: str) -> None:
    status = "Unknown" if (kind, reason) in UNKNOWN else str(kind in POSITIVE)
    labels = {"type": str(kind), "status": status, "reason": str(reason)}
    # Conditions after `unless` and `and` are not causes.
    causes = re.split(r"\n(?:unless|and) ", BY_NAME[name].expression)[0]
    selectors = re.findall(r"halcyon_model_condition\{__JOB__,([^{}]*)\}", causes)
    assert any(selects(selector, labels) for selector in selectors), causes


@pytest.mark.parametrize("reason", [Reason.IMAGE_PULL_FAILED, Reason.CONTAINER_FAILED, Reason.UNSCHEDULABLE])
def test_a_rollout_that_fails_and_stays_causes_an_alert(reason: Reason) -> None:
    test_an_alert_selects_the_conditions_that_cause_it(Type.STALLED, reason, BLOCKED)
