"""Read commands of the runbooks about a model, run by a real kubectl on a real API server as they are printed."""

from __future__ import annotations

import re
import shlex

import pytest

from e2e.cluster.kubectl import Kubectl
from halcyon.kube import kinds
from tests.integration.operator_process import Operator
from tests.integration.operator_space import Space
from tests.unit.monitoring.test_runbook_commands import TEXTS, spans

pytestmark = pytest.mark.more

READS = ("get", "describe", "wait")
ABSENT = (
    "httproute",
    "certificate",
    "podmonitors",
    "BATCH",
    "describe pod POD",
    "apiservice",
    "condition=RoutesAccepted",
    "get batchinferences",
)
"""Objects that this cluster doesn't have."""


def commands() -> list[str]:
    """Return the commands that read objects of a model."""
    reads = {span for text in TEXTS.values() for span in spans(text) if re.match(r"kubectl (?!halcyon)", span)}
    about = (span.partition(" | ")[0] for span in reads if "NAMESPACE" in span)
    return sorted(
        {
            span
            for span in about
            if any(f" {verb} " in span for verb in READS) and not any(word in span for word in ABSENT)
        }
    )


def test_commands_of_runbooks_run_as_they_are_printed(operator: Operator, space: Space, kubectl: Kubectl) -> None:
    operator.wait_ready()
    space.serve(scaling={"maxReplicas": 2, "actuator": "HPA"})
    space.wait_condition("ScalingActive", "Unknown")
    assert space.get(kinds.HPA, "m") is not None
    listed = commands()
    assert len(listed) >= 15

    for command in listed:
        text = command.replace("NAMESPACE", space.namespace).replace("NAME", "m")
        output = kubectl(*shlex.split(text.removeprefix("kubectl ")))
        assert output or "conditions[?" in command or ".status." in command, command
