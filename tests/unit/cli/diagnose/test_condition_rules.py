"""Causes from the conditions of a model: each condition that needs a person has one, with the condition's message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from generators.conditions_reference import REASONS
from halcyon.api.conditions import Reason, Type
from halcyon_cli.diagnose.facts import Cause, Facts
from halcyon_cli.diagnose.registry import causes
from tests.unit.cli.diagnose.test_rules import condition, served
from tests.unit.cli.inventories import NOW

AT = datetime.fromtimestamp(NOW, UTC)
MESSAGE = "this is the message"
OTHERS = {
    Type.READY: "it has the reason of another condition",
    Type.SERVERS_READY: "causes come from the pods",
    Type.POLICY_WARNING: "the spec is accepted",
    Type.RUNTIME_OUTDATED: "the pods serve",
    Type.STALLED: "causes come from status.rollout and from Accepted",
}
"""Types without a cause of their own, and why."""
NORMAL = {
    Type.ACCEPTED: {Reason.ACCEPTED},
    Type.MODEL_LOADED: {Reason.LOADED, Reason.LOADING, Reason.UNKNOWN},
    Type.BALANCER_READY: {Reason.BALANCER_READY, Reason.NO_BALANCER, Reason.UNKNOWN},
    Type.ROUTES_ACCEPTED: {Reason.ROUTES_ACCEPTED},
    Type.SCALING_ACTIVE: {
        *(Reason.SCALING_ACTIVE, Reason.FIXED_REPLICAS, Reason.UNKNOWN),
        # Rules with more evidence: AutoscalerConflict, and the mode with the desired replicas.
        *(Reason.EXTERNAL_AUTOSCALER, Reason.EXTERNAL_WRITER, Reason.PAUSED, Reason.RECOMMENDING),
    },
    Type.RECONCILING: {Reason.PROGRESSING, Reason.ROLLOUT_BLOCKED},
    Type.CAPACITY_CONTRADICTED: {Reason.ANSWERS_DISAGREE},
}
"""Reasons that are no problem, or that come with another condition or with status.rollout."""
POD_REASONS = {Reason.MODEL_CONFIG_INVALID, Reason.MODEL_SOURCE_NOT_FOUND, Reason.MODEL_DOWNLOAD_FAILED}
"""Reasons of ModelLoaded whose causes come from the pods."""
STATUSES = {
    Type.ROUTES_ACCEPTED: {Reason.ROUTES_PENDING: "Unknown"},
    Type.BALANCER_READY: {Reason.BALANCER_DEGRADED: "True"},
}
"""Status of a reason, if it isn't that of its type."""
FALSE = {Type.ACCEPTED, Type.MODEL_LOADED, Type.BALANCER_READY, Type.ROUTES_ACCEPTED, Type.SCALING_ACTIVE}
PROBLEMS = [
    (kind, reason)
    for kind, reasons in REASONS.items()
    for reason in reasons
    if kind not in OTHERS
    and reason not in NORMAL.get(kind, ())
    and (kind is not Type.MODEL_LOADED or reason not in POD_REASONS)
]


def causes_of(kind: Type, reason: Reason) -> list[Cause]:
    """Return the causes of a served model that has this condition, from the condition's message."""
    status = STATUSES.get(kind, {}).get(reason, str(kind not in FALSE))
    facts = Facts(served(model=condition(str(kind), status, str(reason), MESSAGE)), AT)
    return [cause for cause in causes(facts) if MESSAGE in cause.evidence]


@pytest.mark.parametrize(("kind", "reason"), PROBLEMS, ids=str)
def test_each_condition_that_needs_a_person_is_a_likely_cause(kind: Type, reason: Reason) -> None:
    [cause] = causes_of(kind, reason)

    assert cause.next_step
    assert "{" not in cause.next_step


def test_a_queue_timeout_below_the_start_time_is_no_batch_delay() -> None:
    [delay] = causes_of(Type.TIMEOUT_MISMATCH, Reason.QUEUE_DELAY_TOO_LONG)
    [timeout] = causes_of(Type.TIMEOUT_MISMATCH, Reason.QUEUE_TIMEOUT_TOO_SHORT)

    assert "maxQueueDelay" in delay.next_step
    assert "queueTimeout" in timeout.next_step
