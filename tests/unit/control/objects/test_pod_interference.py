"""What others add to pods, from statuses as a kubelet and the API server write them."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.conditions import Reason
from halcyon.api.timestamps import epoch_seconds, rfc3339
from halcyon.control.objects import pod_interference, pod_stage, pods
from halcyon.control.objects.pod_stage import Stage
from halcyon.control.objects.volume_attachment import conflict, exclusive_modes
from halcyon.control.status import cold_start
from halcyon.kube import pod_times

T0 = 1_767_268_800.0
Json = dict[str, Any]


def at(second: float) -> str:
    return rfc3339(T0 + second)


def container(name: str, state: Json, *, ready: bool = False, restarts: int = 0, last: Json | None = None) -> Json:
    started = ready or "running" in state
    return {
        "name": name,
        "image": f"{name}:1",
        "restartCount": restarts,
        "started": started,
        "ready": ready,
        "state": state,
        "lastState": last or {},
    }


def running(second: float = 10) -> Json:
    return {"running": {"startedAt": at(second)}}


def over(begin: float = 5, end: float = 9, code: int = 0) -> Json:
    return {"terminated": {"exitCode": code, "reason": "Error", "startedAt": at(begin), "finishedAt": at(end)}}


def waits(reason: str = "PodInitializing") -> Json:
    return {"waiting": {"reason": reason}}


def pod(init: list[Json], main: list[Json], *, ready: bool = False, ahead_s: float = 0, **spec: Any) -> Json:
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(1)},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": at(17 + ahead_s)},
    ]
    status = {"phase": "Running", "startTime": at(1 + ahead_s), "conditions": conditions, "podIP": "10.0.0.1"}
    labels = {"app.kubernetes.io/component": "server", "serving.halcyon.dev/revision": "r"}
    meta = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1", "labels": labels}
    return pods.project(
        {
            "metadata": meta | {"creationTimestamp": at(0)},
            "spec": spec,
            "status": {**status, "initContainerStatuses": init, "containerStatuses": main},
        }
    )


FETCHED = container("fetch", over(), ready=True)
SERVES = container("triton", running(), ready=True)
SIDECAR = container("istio-proxy", running(2), ready=True)


@pytest.mark.parametrize("init", [[FETCHED, SIDECAR], [SIDECAR, FETCHED]])
@pytest.mark.parametrize("main", [[SERVES, SIDECAR], [SIDECAR, SERVES]])
def test_injected_containers_in_any_position_change_no_stage_and_no_time(init: list[Json], main: list[Json]) -> None:
    served = pod(init, main, ready=True)

    assert pod_stage.stage(served) == Stage("ready")
    start = cold_start.start(served)
    assert start is not None
    assert (start.total_s, start.parts) == (17, (("scheduling", 1), ("pulling", 4), ("fetching", 4), ("loading", 8)))
    assert pod_times.pod_times(served, "fetch").main_started_at == T0 + 10
    fetching = pod([SIDECAR, container("fetch", running(5))], [container("triton", waits())])
    assert pod_stage.stage(fetching).state == "fetching"


def test_a_restart_of_an_injected_container_makes_no_server_broken() -> None:
    injected = pod(
        [FETCHED], [container("triton", running()), container("istio-proxy", running(), ready=True, restarts=4)]
    )

    reading = pods.reading(injected, None)
    assert reading is not None
    assert reading.phase == "starting"


@pytest.mark.parametrize(
    ("init", "main", "text"),
    [
        ([container("vault", over(2, 3, code=1), restarts=3), container("fetch", waits())], [container("triton", waits())], "init container vault, which was added to the pod by an admission webhook and not by Halcyon, terminated: Error (exit code 1), 3 restarts"),
        ([container("vault", waits("ImagePullBackOff")), container("fetch", waits())], [container("triton", waits())], "is waiting: ImagePullBackOff"),
        ([container("istio-init", running(2)) | {"started": False}, container("fetch", waits())], [container("triton", waits())], "init container istio-init, which was added to the pod by an admission webhook and not by Halcyon, has not ended"),
        ([FETCHED], [container("istio-proxy", running()), SERVES], "container istio-proxy, which was added to the pod by an admission webhook and not by Halcyon, is not ready"),
        ([FETCHED], [container("istio-proxy", waits("CrashLoopBackOff"), restarts=5, last=over(code=2)), SERVES], "is waiting: CrashLoopBackOff"),
    ],
)  # fmt: skip
def test_an_injected_container_that_blocks_the_start_is_named(init: list[Json], main: list[Json], text: str) -> None:
    blocked = pod(init, main)

    assert text in pod_interference.start_blocker(blocked)
    failure = pods.failure([blocked])
    assert failure is not None
    assert failure.reason is Reason.START_BLOCKED
    assert pod_stage.stage(blocked) == Stage("pending", "StartBlocked", failure.message)


@pytest.mark.parametrize(
    ("init", "main"),
    [
        ([SIDECAR, container("fetch", running(5))], [container("triton", waits())]),
        ([SIDECAR, container("fetch", waits("ImagePullBackOff"))], [container("triton", waits())]),
        ([FETCHED], [container("triton", running()) | {"started": False}, container("istio-proxy", running())]),
    ],
)
def test_the_own_containers_are_not_excused_by_injected_ones(init: list[Json], main: list[Json]) -> None:
    assert pod_interference.start_blocker(pod(init, main)) == ""


def test_the_own_containers_begin_after_the_init_containers_of_others() -> None:
    waited = pod([container("vault", over(2, 700)), container("fetch", running(701))], [container("triton", waits())])

    assert pod_interference.released_at(waited) == T0 + 700
    assert pod_interference.released_at(pod([FETCHED], [SERVES])) == T0 + 1


def test_a_gated_pod_is_unschedulable_and_names_its_gate() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "non-empty gates"}
    gated_pod = pods.project(
        {
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1", "creationTimestamp": at(0)},
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
            "status": {"phase": "Pending", "conditions": [gated]},
        }
    )

    assert pods.is_unschedulable(gated_pod)
    assert pods.unschedulable_since(gated_pod) == T0
    stage = pod_stage.stage(gated_pod)
    assert (stage.state, stage.reason) == ("pending", "Unschedulable")
    assert "scheduling gate kueue.x-k8s.io/admission keeps the scheduler from placing it" in stage.message
    reading = pods.reading(gated_pod, None)
    assert reading is not None
    assert reading.phase == "unschedulable"


@pytest.mark.parametrize(
    ("reason", "disrupted", "state"),
    [
        ("Preempting", True, "ended"),
        ("Terminated", True, "ended"),
        ("Evicted", True, "failed"),
        ("Error", False, "failed"),
    ],
)
def test_a_pod_that_others_ended_has_not_failed(reason: str, disrupted: bool, state: str) -> None:
    disruption = {"type": "DisruptionTarget", "status": str(disrupted), "reason": "PreemptionByScheduler"}
    ended_pod = pods.project(
        {
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"},
            "status": {"phase": "Failed", "reason": reason, "message": "said", "conditions": [disruption]},
        }
    )

    assert pod_stage.stage(ended_pod) == Stage(state, reason, "said")  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_times_of_a_node_whose_clock_differs_are_moved(ahead_s: float) -> None:
    fetched = container("fetch", over(5 + ahead_s, 9 + ahead_s), ready=True)
    served = pod([fetched], [container("triton", running(10 + ahead_s), ready=True)], ready=True, ahead_s=ahead_s)

    start = cold_start.start(served)
    assert start is not None
    assert (start.total_s, dict(start.parts)) == (17, {"scheduling": 1, "pulling": 4, "fetching": 4, "loading": 8})
    assert pods.ready_since(served) == T0 + 17


def test_a_kubelet_that_is_a_minute_late_has_the_same_clock() -> None:
    late = pod([FETCHED], [SERVES], ready=True, ahead_s=50)

    assert pods.ready_since(late) == T0 + 67
    assert epoch_seconds(late["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]) == T0 + 10


def test_a_volume_that_one_node_can_attach_keeps_pods_of_others_waiting() -> None:
    volumes = [{"name": "source", "persistentVolumeClaim": {"claimName": "disk"}}]
    holder = pod([FETCHED], [SERVES], ready=True, nodeName="a", volumes=volumes)
    new = pod([container("fetch", waits())], [container("triton", waits())], nodeName="b", volumes=volumes)
    beside = pod([container("fetch", waits())], [container("triton", waits())], nodeName="a", volumes=volumes)
    modes = {"disk": exclusive_modes({"spec": {"accessModes": ["ReadWriteOnce"]}})}

    assert (
        "on node b and can't attach PersistentVolumeClaim disk (ReadWriteOnce), which pod p uses on node a"
        in conflict(new, [holder, new], modes)
    )
    assert conflict(beside, [holder, beside], modes) == ""
    assert conflict(holder, [holder, new], modes) == ""
    assert exclusive_modes({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}}) == ""
    assert conflict(new, [holder, new], {}) == ""
