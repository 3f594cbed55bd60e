"""What `halcyon diagnose` takes for likely causes: a situation for each rule, and none where nothing is wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from halcyon.api.timestamps import rfc3339
from halcyon_cli.commands.diagnose import is_of_another, page
from halcyon_cli.diagnose.facts import Cause, Facts
from halcyon_cli.diagnose.registry import RULES, causes
from halcyon_cli.kube.free_capacity import FreeCapacity, Holder
from halcyon_cli.kube.inventory import Inventory
from tests.unit.cli import inventories as scenes
from tests.unit.cli.explain.test_report import GOLDEN, compared
from tests.unit.cli.explained_models import SITUATIONS
from tests.unit.cli.inventories import NOW, pod, unschedulable

AT = datetime.fromtimestamp(NOW, UTC)
SLOW: dict[str, Any] = {"name": "triton", "state": scenes.RUNNING, "started": False, "restartCount": 0}
FELL: dict[str, Any] = {"name": "triton", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
EVENT: dict[str, Any] = {
    "type": "Warning",
    "reason": "FailedMount",
    "note": "MountVolume.SetUp failed",
    "regarding": {"kind": "Pod", "name": "digits-a-1"},
    "eventTime": rfc3339(NOW - 60),
}

FULL: dict[str, Any] = {
    "metadata": {"name": "night"},
    "status": {
        "conditions": [
            {"type": "Failed", "status": "True", "reason": "OutputFull", "message": "no space is left"},
            {"type": "Complete", "status": "False", "reason": "Failed", "message": "it has failed"},
        ]
    },
}


def seen_of(situation: str, change: Callable[[Any], None] = lambda _: None) -> Inventory:
    resource = SITUATIONS[situation]().resource()
    change(resource)
    return Inventory(resource)


def served(*pods: Any, **fields: Any) -> Inventory:
    """A model that is served by one pod, and these besides."""
    cluster = scenes.served(room=1, count=1)
    return scenes.inventory(cluster, *pods, **fields)


def condition(kind: str, status: str, reason: str, message: str = "said") -> Callable[[Any], None]:
    def change(model: Any) -> None:
        rest = [c for c in model["status"]["conditions"] if c["type"] != kind]
        model["status"]["conditions"] = [*rest, {"type": kind, "status": status, "reason": reason, "message": message}]

    return change


def refusing(message: str) -> Inventory:
    refused = copy.deepcopy(served())
    refused.slots[0]["status"]["conditions"] = [  # type: ignore[index]  # plain dicts
        {"type": "ReplicaFailure", "status": "True", "message": message}
    ]
    return refused


def fallen(reason: str) -> Any:
    return pod("p", containers=[{**FELL, "lastState": {"terminated": {"exitCode": 137, "reason": reason}}}])


CASES: dict[str, tuple[Callable[[], Inventory], str, str]] = {
    "not accepted": (lambda: served(model=condition("Accepted", "False", "SourceNotFound", "ConfigMap files is missing")), "the spec was rejected (SourceNotFound)", "create the missing object"),
    "unheard": (scenes.unheard, "the operator has not processed the current spec", "check the operator: "),
    "no image": (lambda: served(pod("p", containers=[{"name": "triton", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}])), "an image can't be pulled", "spec.runtime.image"),
    "no model": (lambda: served(pod("p", init=[{"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "message": '{"reason": "ModelSourceNotFound", "message": "no folder"}'}}}])), "the model is not at spec.model.source", "spec.model.source"),
    "bad config": (lambda: served(pod("p", init=[{"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "message": '{"reason": "ModelConfigInvalid", "message": "line 3"}'}}}])), "the model's configuration is invalid", "correct config.pbtxt"),
    "not loaded": (lambda: served(model=condition("ModelLoaded", "False", "LoadFailed", "no such backend")), "Triton can't load the model", "container triton"),
    "out of memory": (lambda: served(fallen("OOMKilled")), "Triton runs out of memory", "raise spec.runtime.resources.limits.memory, which is not set"),
    "falls": (lambda: served(fallen("Error")), "a container crashes repeatedly", "--previous"),
    "no GPU": (lambda: served(unschedulable("p", "")), "no node has a free GPU", "free GPUs"),
    "no slice": (lambda: served(unschedulable("p", "", "0/3 nodes are available: 3 Insufficient amd.com/gpu.")), "no node has a free GPU", "free GPUs"),
    "no device": (lambda: served(unschedulable("p", "", "0/3 nodes are available: 3 cannot allocate all claims.")), "no node has free devices for the pod's ResourceClaim", "kubectl get resourceslices"),
    "a gate": (lambda: served(pod("p", node=False, init=[], containers=[], status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}) | {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}), "another controller keeps the pods from being scheduled", "kubectl get workloads"),
    "a sidecar": (lambda: served(pod("p", containers=[{"name": "istio-proxy", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}, {"name": "triton", "started": True, "restartCount": 0, "state": {"running": {}}}])), "a container that is not Halcyon's keeps pods from starting", "owner of the webhook"),
    "no claim": (lambda: served(pod("p", node=False, init=[], containers=[], status={"conditions": []}) | {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}), "the pod's ResourceClaim is missing", "check the ResourceClaimTemplate"),
    "no volume": (lambda: served(unschedulable("p", "", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")), "the model's volume is not available on the pod's nodes", "kubectl get pvc"),
    "no memory": (lambda: served(unschedulable("p", "", "0/3 nodes are available: 3 Insufficient memory.")), "no node has enough free memory", "lower spec.runtime.resources.requests.memory"),
    "taints": (lambda: served(unschedulable("p", "", "0/3 nodes are available: 3 node(s) had untolerated taint {a: b}.")), "the nodes have taints that the pods don't tolerate", "tolerations"),
    "no room at all": (lambda: served(unschedulable("p", "", "because")), "no node fits the pod", "describe node"),
    "quota": (lambda: refusing("pods is forbidden: exceeded quota: gpus"), "a ResourceQuota rejects new pods", "raise the ResourceQuota"),
    "unset quota": (lambda: refusing("pods is forbidden: failed quota: q: must specify limits.cpu for: triton"), "a ResourceQuota rejects new pods", "set the amounts"),
    "no quota": (lambda: refusing('pods "quota-a" is forbidden: violates PodSecurity "restricted:latest"'), "the API server rejects new pods", "admission rule"),
    "refused": (lambda: refusing("admission webhook denied the request"), "the API server rejects new pods", "admission rule"),
    "no balancer": (lambda: served(model=condition("BalancerReady", "False", "BalancerNotReady")), "no balancer is ready, so requests fail", "kubectl describe pods"),
    "rolled back": (scenes.failed, "the spec's revision failed and is not served", "is not retried automatically"),
    "unready": (lambda: served(pod("p", status={"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(NOW)}]})), "pods that were ready no longer are", "read the log"),
    "lost node": (lambda: served(pod("p", containers=[{"name": "triton", "started": True, "ready": True, "restartCount": 0, "state": scenes.RUNNING}], status={"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(NOW)}]})), "the node of pods does not respond", "kubectl describe node"),
    "other autoscaler": (lambda: seen_of("other-autoscaler"), "an external autoscaler or client scales this model", "remove the external writer"),
    "blind": (lambda: seen_of("blind", condition("Accepted", "True", "Accepted")), "a scaling signal is missing, so the replicas stay", "balancer's pods"),
    "slow to load": (lambda: served(pod("p", containers=[SLOW])), "Triton takes long to load the model", "startupTimeout"),
    "paused": (lambda: seen_of("paused"), "scaling is paused", "halcyon resume digits"),
    "recommends": (lambda: seen_of("recommend"), "scaling is in mode Recommend", "halcyon resume digits"),
    "evicted": (lambda: served(pod("p", status={"phase": "Failed", "reason": "Evicted", "message": "low on memory"})), "pods were evicted", "spec.runtime.resources"),
    "home is full": (lambda: served(pod("p", status={"phase": "Failed", "reason": "Evicted", "message": 'Usage of EmptyDir volume "home" exceeds the limit "20Gi". '})), "pods were evicted", "HF_HOME"),
    "restarted": (lambda: served(pod("p", ready=True, containers=[{**FELL, "state": scenes.RUNNING, "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}])), "pods that are ready now have crashed before", "--previous"),
    "mismatch": (lambda: served(model=condition("TimeoutMismatch", "True", "QueueDelayTooLong")), "requests may wait for their batch beyond their timeout", "lower spec.batching.maxQueueDelay"),
    "ignored": (lambda: served(model=condition("FieldIgnored", "True", "NoEffect")), "a field of the spec has no effect", "remove it"),
}  # fmt: skip


def causes_in(seen: Inventory, **facts: Any) -> list[Cause]:
    return causes(Facts(seen, AT, **facts))


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named_first_with_its_evidence_and_a_next_step(name: str) -> None:
    make, summary, then = CASES[name]
    first = causes_in(make())[0]

    assert first.summary == summary
    assert then in first.next_step
    assert all(first.evidence)


def test_every_rule_has_a_situation() -> None:
    seen: set[int] = set()
    from halcyon_cli.diagnose.facts import ConditionIndex  # noqa: PLC0415

    situations = [make() for make, _, _ in CASES.values()] + [limited("max")]
    for n, rule in enumerate(RULES):
        if any(
            [
                *rule(
                    Facts(
                        s,
                        AT,
                        [{**EVENT, "regarding": {"kind": "HorizontalPodAutoscaler", "name": "m"}}],
                        batches=[FULL],
                    ),
                    ConditionIndex.from_inventory(s),
                )
            ]
            for s in situations
        ):
            seen.add(n)
    assert [RULES[n].__name__ for n in range(len(RULES)) if n not in seen] == []


@pytest.mark.parametrize("scene", [scenes.steady, scenes.canary])
def test_a_healthy_model_has_no_findings(scene: Callable[[], Inventory]) -> None:
    assert causes_in(scene(), operators=[]) == []


def test_a_pod_that_has_just_begun_to_load_is_no_failure() -> None:
    assert causes(Facts(scenes.surge(), datetime.fromtimestamp(scenes.START + 60, UTC))) == []


def limited(by: str) -> Inventory:
    model = copy.deepcopy(SITUATIONS["rising"]().resource())
    model["status"]["scaling"]["limitedBy"] = [by]
    return Inventory(model)


@pytest.mark.parametrize("by", ["max", "quota", "budget"])
def test_a_limit_on_the_replicas_is_shown_with_the_queue(by: str) -> None:
    (cause,) = (c for c in causes_in(limited(by)) if 50 < c.weight < 60)

    assert "queue 121" in cause.evidence[-1]


def test_recent_warnings_are_shown_once_except_those_of_ready_pods() -> None:
    kubelet = {**EVENT, "reason": "BackOff", "eventTime": None, "deprecatedLastTimestamp": rfc3339(NOW - 5)}
    old = {**EVENT, "reason": "Old", "eventTime": rfc3339(NOW - 7200)}
    normal = {**EVENT, "reason": "Fine", "type": "Normal"}
    ready = {**EVENT, "reason": "Unhealthy", "regarding": {"kind": "Pod", "name": "p1"}}
    seen = served(pod("digits-a-1", containers=[{**SLOW}], metadata={"creationTimestamp": rfc3339(NOW - 5)}))
    (cause,) = causes_in(seen, events=[EVENT, EVENT, kubelet, old, normal, ready])

    assert cause.evidence == (
        "Pod digits-a-1: FailedMount: MountVolume.SetUp failed",
        "Pod digits-a-1: BackOff: MountVolume.SetUp failed",
    )


def test_a_failed_batch_is_shown_with_its_message() -> None:
    (cause,) = causes_in(served(), batches=[FULL, {"metadata": {"name": "new"}}])

    assert cause.summary == "a batch of digits has failed (OutputFull)"
    assert cause.evidence == ("batchinference night: no space is left",)
    assert cause.next_step == "remove the cause, then halcyon batch resume night -n team"


def test_a_missing_operator_is_reported() -> None:
    fresh = scenes.unheard()
    assert "0 of 0 operator pods are ready" in causes_in(fresh, operators=[])[0].evidence
    assert "helm install" in causes_in(fresh, operators=[])[0].next_step
    operator_pod = pod("halcyon-0", ready=True)
    assert "1 of 1 operator pods are ready" in causes_in(fresh, operators=[operator_pod])[0].evidence


def test_capacity_of_the_nodes_is_shown_if_the_resource_is_missing() -> None:
    seen = served(unschedulable("p", ""))
    free, other = (
        FreeCapacity("nvidia.com/gpu", 8, 0, 0, 1, (Holder("batch/train", 8),)),
        FreeCapacity("amd.com/gpu", 8, 8, 8, 1, ()),
    )

    (cause,) = causes_in(seen, free_capacity=(other, free))
    assert cause.evidence == (f"pod p: {scenes.NO_GPU}", free.describe())


def test_many_pods_are_counted() -> None:
    seen = served(*(unschedulable(f"p{n}", "") for n in range(9)))

    assert causes_in(seen)[0].evidence[-1] == "and 6 more"


def test_the_page_is_that_of_the_golden_file() -> None:
    seen = scenes.stages()
    text = page(
        "team/digits",
        causes_in(seen, events=[{**EVENT, "regarding": {"kind": "Pod", "name": "p-pulling"}}]),
        ['events: no access: User "bob" cannot list'],
    )

    compared(GOLDEN / "diagnosis.txt", text + "\n")


def test_warnings_of_balancer_pods_that_are_not_ready_are_shown() -> None:
    balancer = pod("digits-balancer-1", component="balancer", containers=[SLOW])
    event = {**EVENT, "regarding": {"kind": "Pod", "name": "digits-balancer-1"}}
    cause = causes_in(served(balancer), events=[event])[-1]
    assert cause.evidence == ("Pod digits-balancer-1: FailedMount: MountVolume.SetUp failed",)


@pytest.mark.parametrize(
    ("subject", "is_other"),
    [
        ("digits-v2", True),
        ("digits-v2-a-7c9d-x2", True),
        ("digits-a-7c9d-x2", False),
        ("digits-v2-is-mine", False),
        ("digits", False),
    ],
)
def test_events_of_models_with_longer_names_are_left_out(subject: str, is_other: bool) -> None:
    event = {**EVENT, "regarding": {"kind": "ReplicaSet", "name": subject}}
    assert is_of_another(event, ["digits-v2"], {"digits-v2-is-mine"}) is is_other


def test_an_invalid_batch_is_a_cause_with_its_field() -> None:
    conditions = [
        {"type": kind, "status": status, "reason": "Invalid", "message": "spec.rowsPerRequest is 0"}
        for kind, status in (("Failed", "True"), ("Complete", "False"))
    ]
    (cause,) = causes_in(served(), batches=[{"metadata": {"name": "night"}, "status": {"conditions": conditions}}])
    assert cause.summary == "a batch of digits has failed (Invalid)"
    assert cause.evidence == ("batchinference night: spec.rowsPerRequest is 0",)
    assert cause.next_step == "correct the field that the message names: kubectl edit batchinference night -n team"


@pytest.mark.parametrize(
    ("before", "seconds"), [({"started": NOW - 400}, 400), ({"started": NOW - 5}, None), ({"scheduled": NOW - 5}, None)]
)
def test_the_time_without_a_node_is_no_slow_start(before: dict[str, float], seconds: int | None) -> None:
    times = {name: rfc3339(at) for name, at in {"scheduled": NOW - 500, **before}.items()}
    triton = SLOW | {"state": {"running": {"startedAt": times["started"]}}} if "started" in times else None
    pulling = {"name": "triton", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times["scheduled"]}
    meta = {"creationTimestamp": rfc3339(NOW - 7200)}
    late = pod("p", init=[], containers=[triton or pulling], metadata=meta, status={"conditions": [scheduled]})
    evidence = [item for cause in causes_in(served(late)) for item in cause.evidence if item.startswith("pod p")]
    assert evidence == ([] if seconds is None else [f"pod p has been loading for {seconds} s"])
