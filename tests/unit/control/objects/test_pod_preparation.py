"""Pods whose node takes too long to mount their volumes and to set up their network."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.timestamps import epoch_seconds
from halcyon.control.objects import pods
from halcyon.control.objects.pod_preparation import PREPARATION_LIMIT_S, due_s, first_unprepared
from halcyon.kube.kinds import Object

PLACED = "2026-01-01T00:00:00Z"
AT = epoch_seconds(PLACED) or 0.0
CREATING = {"name": "triton", "state": {"waiting": {"reason": "ContainerCreating"}}}


def pod(prepared: str = "False", *, containers: list[Any] | None = None, phase: str = "Pending") -> Object:
    """Return a pod with a node, as in the caches."""
    return pods.project(
        {
            "metadata": {"namespace": "team", "name": "m-a-1", "uid": "1", "resourceVersion": "1"},
            "spec": {"nodeName": "gpu-1"},
            "status": {
                "phase": phase,
                "conditions": [
                    {"type": "PodReadyToStartContainers", "status": prepared, "lastTransitionTime": PLACED},
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": PLACED},
                ],
                "containerStatuses": [CREATING] if containers is None else containers,
            },
        }
    )


def test_an_unprepared_pod_is_reported_with_its_node_and_a_command() -> None:
    now = AT + PREPARATION_LIMIT_S
    assert first_unprepared([pod()], now - 1) == ""
    assert due_s([pod()], now - 1) == 1
    assert first_unprepared([pod()], now) == (
        "node gpu-1 has been preparing pod m-a-1 (volumes, network, first image) for more than 120 s; the pod's events "
        "show the reason, for example a missing Secret or a slow image pull: kubectl describe pod m-a-1 -n team"
    )
    assert due_s([pod()], now) is None


@pytest.mark.parametrize(
    "other",
    [
        pod("True"),  # an image is being pulled
        pod(containers=[{"name": "triton", "state": {"running": {}}}]),
        pod(containers=[CREATING | {"restartCount": 1}]),
        pod(containers=[CREATING | {"lastState": {"terminated": {"exitCode": 255, "reason": "Unknown"}}}]),
        pod(phase="Failed"),
    ],
    ids=["prepared", "running", "restarted", "on a node that was restarted", "ended"],
)
def test_pods_past_their_preparation_are_not_reported(other: Object) -> None:
    assert first_unprepared([other], AT + 10 * PREPARATION_LIMIT_S) == ""
    assert due_s([other], AT) is None
