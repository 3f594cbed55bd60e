"""What pods say, from statuses as a kubelet writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halcyon.api.conditions import Reason
from halcyon.control.objects import pod_stage, pods
from halcyon.control.objects.pods import PodFailure
from halcyon.kube.client import Object
from halcyon.render import names
from halcyon.scaling.planner.reading import PodReading
from tests.unit.control.scope_builders import pod

RUNNING = {"name": "triton", "image": "t", "restartCount": 0, "state": {"running": {"startedAt": "t"}}}


def waiting(container: str, reason: str, message: str | None = None, **more: Any) -> dict[str, Any]:
    return (
        {"name": container, "image": "img:1", "restartCount": 0}
        | more
        | {"state": {"waiting": {"reason": reason} | ({"message": message} if message else {})}}
    )


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def pod_failure(**statuses: Any) -> PodFailure | None:
    return pods.failure([pod("p", ready=False, **statuses)])


def test_a_ready_pod_has_no_failure_whatever_its_history() -> None:
    crashed = RUNNING | {"restartCount": 3, "lastState": ended(1)}

    assert pods.failure([pod("p", ready=True, containers=[crashed])]) is None


def test_a_pod_that_has_just_started_has_no_failure() -> None:
    assert (
        pod_failure(containers=[waiting("triton", "PodInitializing")], init=[waiting("fetch", "PodInitializing")])
        is None
    )
    assert pod_failure(containers=[RUNNING]) is None
    assert pod_failure() is None


def test_the_schedulers_message_is_shown() -> None:
    text = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

    assert pods.failure([pod("p", ready=False, unschedulable=text)]) == PodFailure(Reason.UNSCHEDULABLE, text, "p")
    assert pods.is_unschedulable(pod("p", ready=False, unschedulable=text))


def test_an_error_of_the_scheduler_is_shown_as_no_lack_of_capacity() -> None:
    message = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    unplaced = pod("p", ready=False, unschedulable=message, phase="Pending")
    (placed,) = (condition for condition in unplaced["status"]["conditions"] if condition["type"] == "PodScheduled")
    placed["reason"] = "SchedulerError"
    assert pods.failure([unplaced]) == PodFailure(Reason.UNSCHEDULABLE, message, "p")
    assert pod_stage.stage(unplaced) == pod_stage.Stage("pending", "Unschedulable", message)
    assert not pods.is_unschedulable(unplaced)


def test_a_pod_waits_for_its_claim_or_a_node() -> None:
    document = {
        "metadata": {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
        "status": {"phase": "Pending"},
    }

    failure = pods.failure([pods.project(document)])
    assert failure is not None
    assert failure.reason == Reason.UNSCHEDULABLE
    assert failure.message.startswith("its ResourceClaim of ResourceClaimTemplate one-gpu is not created yet; if that")
    assert not pods.is_unschedulable(pods.project(document)), "no pod gives way to one whose template may be missing"
    assert pod_stage.stage(pods.project(document)) == pod_stage.Stage("pending", "Unschedulable", failure.message)
    created = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}
    on_node = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    for status in (created, on_node):
        assert pods.failure([pods.project(document | {"status": {"phase": "Pending", **status}})]) is None


@pytest.mark.parametrize(
    ("reason", "message", "text"),
    [
        ("ErrImagePull", "not found", "container triton: ErrImagePull: not found"),
        (
            "ImagePullBackOff",
            'Back-off pulling image "img:1"',
            'container triton: ImagePullBackOff: Back-off pulling image "img:1"',
        ),
        ("ErrImageNeverPull", None, "container triton: ErrImageNeverPull: img:1"),
        ("InvalidImageName", None, "container triton: InvalidImageName: img:1"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_reported(reason: str, message: str | None, text: str) -> None:
    assert pod_failure(containers=[waiting("triton", reason, message)]) == PodFailure(
        Reason.IMAGE_PULL_FAILED, text, "p"
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ModelConfigInvalid", Reason.MODEL_CONFIG_INVALID),
        ("ModelSourceNotFound", Reason.MODEL_SOURCE_NOT_FOUND),
        ("ModelDownloadFailed", Reason.MODEL_DOWNLOAD_FAILED),
        ("ModelConfigConflict", Reason.MODEL_CONFIG_INVALID),
        ("SomethingNewer", Reason.CONTAINER_FAILED),
    ],
)
def test_the_fetcher_s_reason_is_the_pod_s(reason: str, expected: Reason) -> None:
    message = json.dumps({"reason": reason, "message": "config.pbtxt line 3: x"})
    now = {"name": "fetch", "restartCount": 0, "state": ended(1, message=message)}
    later = waiting("fetch", "CrashLoopBackOff", lastState=ended(1, message=message), restartCount=2)

    for status in (now, later):
        assert pod_failure(init=[status]) == PodFailure(expected, "config.pbtxt line 3: x", "p")


@pytest.mark.parametrize("message", ["", "Traceback", "[]", "null", '{"reason": "x"}'])
def test_a_fetcher_that_ends_without_a_reason_is_a_failed_container(message: str) -> None:
    failure = pod_failure(init=[{"name": "fetch", "restartCount": 0, "state": ended(137, "OOMKilled", message)}])

    assert failure is not None
    assert failure.reason is Reason.CONTAINER_FAILED
    assert failure.message == f"container fetch terminated: OOMKilled (exit code 137) {message}".strip()


def test_a_completed_fetcher_is_no_failure_despite_earlier_attempts() -> None:
    done = {"name": "fetch", "restartCount": 1, "state": ended(0, "Completed"), "lastState": ended(1)}

    assert pod_failure(init=[done], containers=[RUNNING]) is None


def test_a_crash_loop_is_reported_with_its_last_message() -> None:
    crashing = waiting("triton", "CrashLoopBackOff", lastState=ended(139, message="segfault"), restartCount=4)

    assert pod_failure(containers=[crashing]) == PodFailure(
        Reason.CONTAINER_FAILED, "container triton terminated: Error (exit code 139): segfault, 4 restarts", "p"
    )


def test_a_container_that_ended_once_and_runs_is_given_its_time() -> None:
    assert pod_failure(containers=[RUNNING | {"state": ended(1)}]) is None


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "CreateContainerError"])
def test_a_container_that_cannot_be_created_is_reported(reason: str) -> None:
    failure = pod_failure(containers=[waiting("triton", reason, 'secret "tokens" not found')])

    assert failure == PodFailure(Reason.CONTAINER_FAILED, 'container triton: secret "tokens" not found', "p")


def test_a_runtime_without_image_volumes_is_named() -> None:
    # The words of containerd 1.6.20.
    words = 'failed to generate container "08407c" spec: failed to generate spec: failed to mkdir "": mkdir : no such file or directory'
    failure = pod_failure(init=[waiting("fetch", "CreateContainerError", words)])

    assert failure is not None
    assert failure.message.startswith(
        f"container fetch: {words}. The node's container runtime does not support image volumes, which need containerd 2.1"
    )


def test_the_most_telling_failure_of_several_pods_comes_first() -> None:
    stuck = pod("a", ready=False, unschedulable="no node")
    pulling = pod("b", ready=False, containers=[waiting("triton", "ErrImagePull", "no")])
    broken = [
        pod(n, ready=False, init=[{"name": "fetch", "restartCount": 0, "state": ended(1, message=json.dumps(
            {"reason": "ModelConfigInvalid", "message": n}))}])
        for n in ("d", "c")
    ]  # fmt: skip

    assert pods.failure([stuck, pulling, *broken]) == PodFailure(Reason.MODEL_CONFIG_INVALID, "c", "c")
    assert pods.failure([stuck, pulling]) == PodFailure(
        Reason.IMAGE_PULL_FAILED, "container triton: ErrImagePull: no", "b"
    )


@pytest.mark.parametrize("ending", [{"deleted": True}, {"phase": "Failed"}, {"phase": "Succeeded"}])
def test_a_terminating_pod_is_not_evaluated(ending: dict[str, Any]) -> None:
    leaving = pod("p", ready=True, unschedulable="no node", **ending)

    assert not pods.is_live(leaving)
    assert not pods.is_ready(leaving)
    assert not pods.is_unschedulable(leaving)
    assert pods.failure([leaving]) is None


def test_a_projection_keeps_the_requested_fields_and_drops_the_rest() -> None:
    full = {
        "metadata": {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1", "managedFields": [{}]},
        "spec": {"containers": [], "priority": 1000},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Initialized", "status": "True"}]},
    }
    kept = pods.project(full)

    assert set(kept) == {"metadata", "spec", "status"}
    assert kept["spec"] == {"priority": 1000}
    assert pods.priority(kept) == 1000
    assert "managedFields" not in kept["metadata"]
    assert kept["status"]["conditions"] == []
    assert pods.revision(kept) == ""
    assert pods.is_live(kept)


def test_a_projection_counts_extended_resources_over_all_containers() -> None:
    limits = [{"cpu": "2", "nvidia.com/gpu": "2"}, {"memory": "1Gi"}, {"nvidia.com/gpu": 1, "example.com/nic": "x"}]
    full = {
        "metadata": {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "1"},
        "spec": {"containers": [{"resources": {"limits": limit}} for limit in limits] + [{}]},
    }
    kept = pods.project(full)
    assert (pods.devices(kept, "nvidia.com/gpu"), pods.devices(kept, "example.com/nic")) == (3, None)


CREATED, SCHEDULED, READY = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z", "2026-01-01T00:06:00Z"
AT = 1_767_225_600.0
"""CREATED, in seconds since the epoch."""


def started(
    *,
    ready: bool = False,
    scheduled: bool | None = True,
    restarts: int = 0,
    phase: str = "Running",
    leaving: bool = False,
) -> Object:
    """A server pod that was created, had to wait for a node, and became ready; `scheduled` None: nothing is said of it."""
    conditions: list[dict[str, Any]] = [{"type": "Ready", "status": str(ready), "lastTransitionTime": READY}]
    if scheduled is not None:
        reason = {} if scheduled else {"reason": "Unschedulable", "message": "no node"}
        conditions.append({"type": "PodScheduled", "status": str(scheduled), "lastTransitionTime": SCHEDULED, **reason})
    return pods.project(
        {
            "metadata": {
                "namespace": "team",
                "name": "p",
                "uid": "u",
                "resourceVersion": "1",
                "creationTimestamp": CREATED,
                "deletionTimestamp": READY if leaving else None,
            },
            "status": {
                "phase": phase,
                "conditions": conditions,
                "containerStatuses": [RUNNING | {"restartCount": restarts}],
            },
        }
    )


@pytest.mark.parametrize(
    ("seen", "was_ready", "phase"),
    [
        ({"leaving": True, "ready": True}, True, "draining"),
        ({"leaving": True, "scheduled": False}, False, "draining"),
        ({"leaving": True, "phase": "Failed"}, False, "draining"),
        ({"phase": "Failed"}, True, None),
        ({"phase": "Succeeded"}, False, None),
        ({"scheduled": False}, False, "unschedulable"),
        ({"scheduled": False, "restarts": 3}, True, "unschedulable"),
        ({"ready": True}, True, "ready"),
        ({"ready": True, "restarts": 3}, True, "ready"),
        ({}, True, "broken"),
        ({"restarts": 1}, False, "broken"),
        ({}, False, "starting"),
        ({"scheduled": None, "phase": "Pending"}, False, "starting"),
    ],
)
def test_the_phase_of_a_pod_follows_its_table(seen: dict[str, Any], was_ready: bool, phase: str | None) -> None:
    reading = pods.reading(started(**seen), AT + 360 if was_ready else None)

    assert (None if reading is None else reading.phase) == phase


def test_a_pod_begins_to_start_when_it_has_a_node() -> None:
    waited = pods.reading(started(ready=True), AT + 360)

    assert waited == PodReading("p", "ready", AT + 300, AT + 360)


@pytest.mark.parametrize("scheduled", [False, None])
def test_a_pod_without_a_node_began_when_it_was_created(scheduled: bool | None) -> None:
    reading = pods.reading(started(scheduled=scheduled), None)

    assert reading is not None
    assert reading.created_at == AT


@pytest.mark.parametrize(
    ("seen", "since"),
    [({"ready": True}, AT + 360), ({}, None), ({"ready": True, "leaving": True}, None)],
)
def test_a_pod_is_ready_since_its_condition_says_so(seen: dict[str, Any], since: float | None) -> None:
    assert pods.ready_since(started(**seen)) == since


@pytest.mark.parametrize("component", [names.SERVER, names.BALANCER])
def test_a_pod_on_a_lost_node_shows_the_node(component: str) -> None:
    """The kubelet gives a reason whenever a pod isn't ready; the controller of lost nodes gives none."""

    def stage_with(reason: str | None, *, ready: bool) -> pod_stage.Stage:
        status = RUNNING | {"started": True, "ready": ready, "state": {"running": {"startedAt": CREATED}}}
        seen = {
            "metadata": {
                "namespace": "team",
                "name": "p",
                "uid": "u",
                "resourceVersion": "1",
                "labels": {names.COMPONENT_LABEL: component},
            },
            "spec": {"nodeName": "gpu-1"},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "False", "lastTransitionTime": READY, "reason": reason},
                ],
                "containerStatuses": [status],
            },
        }
        return pod_stage.stage(pods.project(seen))

    assert stage_with(None, ready=True) == pod_stage.Stage("unready", "NodeNotReady", "node gpu-1 does not respond")
    assert stage_with("ReadinessGatesNotReady", ready=True).reason == ""
    assert stage_with("ContainersNotReady", ready=False).reason == ""


def test_balancers_are_no_servers() -> None:
    server, balancer = pod("s", ready=True), pod("b", ready=True)
    server["metadata"]["labels"] = {names.COMPONENT_LABEL: names.SERVER}
    balancer["metadata"]["labels"] = {names.COMPONENT_LABEL: names.BALANCER}

    assert [pods.is_server(p) for p in (server, balancer, pod("x", ready=True))] == [True, False, False]


@pytest.mark.parametrize(
    ("agent", "haproxy", "ready", "state"),
    [
        ({"waiting": {"reason": "PodInitializing"}}, {"waiting": {"reason": "PodInitializing"}}, False, "pulling"),
        ({"running": {}}, {"waiting": {"reason": "PodInitializing"}}, False, "pulling"),
        ({"running": {}}, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, False, "unready"),
        ({"running": {}}, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, True, "ready"),
    ],
)
def test_a_balancer_pod_fetches_and_loads_no_model(agent: Object, haproxy: Object, *, ready: bool, state: str) -> None:
    conditions = [{"type": "Ready", "status": str(ready)}, {"type": "PodScheduled", "status": "True"}]
    balancer = pods.project(
        {
            "metadata": {
                "namespace": "team",
                "name": "p",
                "uid": "u",
                "resourceVersion": "1",
                "labels": {names.COMPONENT_LABEL: names.BALANCER},
            },
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "initContainerStatuses": [{"name": "agent", "restartCount": 0, "state": agent}],
                "containerStatuses": [{"name": "haproxy", "restartCount": 0, "started": True, "state": haproxy}],
            },
        }
    )
    assert pod_stage.stage(balancer).state == state
