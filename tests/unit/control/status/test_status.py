"""The status: each row of each truth table in `halcyon.control.status.status`, and what tools make of it."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.api.conditions import Reason
from halcyon.api.documents.measured_capacity import MeasuredCapacity, MeasuredLine, Served
from halcyon.api.spec.defaults import ResolvedTargets
from halcyon.api.status import Status
from halcyon.control.desired.plan import make
from halcyon.control.rollout.rollout_record import RolloutRecord
from halcyon.control.state.scope import Measured, PublishedCosts, PublishedScaling, Scope, Signals, SourceState
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render.names import SLOT_A
from halcyon.scaling.gpu_cost import Cost
from halcyon.scaling.hpa.algorithm import signal_proposals
from halcyon.scaling.hpa.metrics import RulesReading
from halcyon.scaling.observations import Value
from halcyon.scaling.planner.capacity.queueing import Replica, ServiceLine
from halcyon.scaling.planner.capacity_source import CapacitySource
from halcyon.scaling.planner.outputs import PlanPart
from halcyon.scaling.planner.reading import Objectives
from halcyon.scaling.policy.decision import Change, Decision, Signal
from tests.drawn import draws
from tests.strategies import documents
from tests.unit.control.scope_builders import applied_children, conflicting_object, pod, resource, scope_of
from tests.unit.control.status import kstatus

NOW = "2026-01-02T03:04:05Z"
SCALING = {"scaling": {"minReplicas": 1, "maxReplicas": 4}}
RULES = {"scaling": {"minReplicas": 1, "maxReplicas": 4, "policy": "Rules"}}
OURS = ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io", tolerance=True)
AT = 1767323045.0
"""NOW, in seconds since the epoch."""
SIGNALS = (Signal("queueDepth", 12.0, 8, at=AT, shown=12.0), Signal("gpuUtilization", 150.0, 80, shown=75.0))
DECIDED = Decision(AT, "Planner", 1, 2, "2 replicas: 30 req/s needs 2; no limit applies", signals=SIGNALS)
BLIND = replace(DECIDED, desired=1, unknown="queueDepth: no agent for 20 s")
UNREPORTED = replace(DECIDED, desired=1, unknown="no balancer agent has reported yet", has_reports=False)


REPORTED = Signals(mean_batch=3.25)


def decided(verdict: Decision = DECIDED, *changes: Change, rival: str = "") -> PublishedScaling:
    return PublishedScaling(verdict, changes, rival)


PULLING = [{"name": "triton", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]


def fetcher(reason: str) -> list[Any]:
    message = json.dumps({"reason": reason, "message": "line 3: expected a number"})
    return [{"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "message": message}}}]


def deployed(
    spec: dict[str, Any] | None = None,
    *,
    ready: int = 1,
    starting: int = 0,
    old: int = 0,
    balancers: int = 2,
    server: Object | None = None,
    hpa: Object | None = None,
    troubled: dict[str, Any] | None = None,
    **fields: Any,
) -> Scope:
    """A view some time after the plan was applied: so many pods ready and starting, and ready ones of another revision."""
    before = scope_of(spec, **{k: v for k, v in fields.items() if k in {"metrics_api", "source"}})
    planned = make(before)
    assert planned.target is not None
    children = applied_children(before)
    count = ready + starting
    children[kinds.DEPLOYMENT, "digits-a"]["metadata"]["generation"] = 1
    children[kinds.DEPLOYMENT, "digits-a"]["status"] = {
        "observedGeneration": 1,
        "replicas": count + old,
        "updatedReplicas": count,
        "readyReplicas": ready + old,
    } | (server or {})
    if (beside := children.get((kinds.DEPLOYMENT, "digits-balancer"))) is not None:
        beside["status"] = {"availableReplicas": balancers} if balancers else {}
    if hpa is not None:
        children[kinds.HPA, "digits"]["status"] = hpa
    key = planned.target.key
    pods = [
        *(pod(f"ready-{n}", ready=True, revision=key) for n in range(ready)),
        *(pod(f"starting-{n}", ready=False, revision=key, **troubled or {}) for n in range(starting)),
        *(pod(f"old-{n}", ready=True, revision="0123456789") for n in range(old)),
    ]
    return replace(before, children=children, revisions=(planned.target,), pods=tuple(pods), **fields)


def of(now: Scope) -> Object:
    return status.make(now, make(now), now=NOW)


def condition(now: Scope, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition of this type."""
    conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in of(now)["conditions"]}
    return conditions.get(kind)


def reason_and_message(now: Scope, kind: str) -> tuple[str, str] | None:
    shown = condition(now, kind)
    return None if shown is None else shown[:2]


def reconciled(now: Scope) -> str:
    """What kstatus says of the resource with the status of this view."""
    return kstatus.compute({**now.resource, "status": of(now)})


# Accepted


def test_accepted_is_true_where_the_spec_is_valid_and_its_source_there() -> None:
    assert reason_and_message(deployed(), "Accepted") == ("True", "Accepted")


def test_accepted_is_false_where_the_api_server_refused_a_write() -> None:
    now = deployed(rejected_write="PATCH deployments: exceeded quota")

    assert condition(now, "Accepted") == ("False", "Forbidden", "PATCH deployments: exceeded quota")


def test_accepted_is_false_if_a_name_is_taken() -> None:
    now = scope_of(children={(kinds.SERVICE, "digits"): conflicting_object(kinds.SERVICE, "digits")})

    assert reason_and_message(now, "Accepted") == ("False", "Conflict")


def test_accepted_is_false_where_the_spec_is_broken() -> None:
    now = scope_of({"replicas": 2, "batching": {"maxBatchSize": 0}})

    assert condition(now, "Accepted") == (
        "False", "Invalid", "spec.batching.maxBatchSize is 0: must be a whole number from 1 to 65536",
    )  # fmt: skip


def test_a_broken_spec_after_a_good_one_says_what_keeps_serving() -> None:
    now = replace(deployed(), resource=resource({"batching": {"maxBatchSize": 0}}))
    accepted = condition(now, "Accepted")

    assert accepted is not None
    assert accepted[2].endswith("; the last accepted spec stays in effect")


def test_accepted_is_false_where_the_source_is_missing() -> None:
    missing = "ConfigMap team/m doesn't exist"

    assert condition(scope_of(source=SourceState(missing=missing)), "Accepted") == ("False", "SourceNotFound", missing)


# ModelLoaded


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed(ready=1, starting=1), ("True", "Loaded")),
        (deployed(ready=1, starting=1, troubled={"init": fetcher("ModelConfigInvalid")}), ("True", "Loaded")),
        (
            deployed(ready=0, starting=1, troubled={"init": fetcher("ModelConfigInvalid")}),
            ("False", "ModelConfigInvalid"),
        ),
        (
            deployed(ready=0, starting=1, troubled={"init": fetcher("ModelSourceNotFound")}),
            ("False", "ModelSourceNotFound"),
        ),
        (
            deployed(ready=0, starting=1, signals=Signals(load_errors={"starting-0": "no version folder"})),
            ("False", "LoadFailed"),
        ),
        (deployed(ready=0, starting=1, signals=Signals(load_errors={"gone": "old news"})), ("Unknown", "Loading")),
        (deployed(ready=0, starting=1, old=1), ("Unknown", "Loading")),
        (deployed(ready=0, old=1), ("Unknown", "Unknown")),
        (scope_of(), ("Unknown", "Unknown")),
    ],
)
def test_model_loaded_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert reason_and_message(now, "ModelLoaded") == expected


def test_a_model_that_does_not_load_is_reported_in_tritons_words() -> None:
    now = deployed(ready=0, starting=1, signals=Signals(load_errors={"starting-0": "unexpected shape"}))

    assert condition(now, "ModelLoaded") == ("False", "LoadFailed", "unexpected shape")
    assert of(now)["model"] == {"name": "digits", "error": "unexpected shape"}
    assert reason_and_message(now, "Ready") == ("False", "LoadFailed")
    assert reason_and_message(now, "Stalled") == ("True", "LoadFailed")


@pytest.mark.parametrize(
    "error",
    [
        "Invalid argument: instance group digits_0 of model digits specifies invalid or unsupported gpu id 0. GPUs with ...",
        "Internal: RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU ...",
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_gpu_that_is_missing_and_not_requested_is_explained(error: str, gpus: int) -> None:
    signals = Signals(load_errors={"starting-0": error})
    now = deployed({"runtime": {"gpu": {"count": gpus}}}, ready=0, starting=1, signals=signals)
    hint = ". The spec requests no GPU; to request one, set spec.runtime.gpu, for example {count: 1}"

    assert condition(now, "ModelLoaded") == ("False", "LoadFailed", error if gpus else error + hint)


# ServersReady


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed({"replicas": 0}, ready=0), ("True", "ScaledToZero")),
        (deployed({"replicas": 2}, ready=2), ("True", "ServersReady")),
        (deployed({"replicas": 2}, ready=3), ("True", "ServersReady")),
        (
            deployed({"replicas": 2}, ready=1, starting=1, troubled={"unschedulable": "no GPU"}),
            ("False", "PartiallyReady"),
        ),
        (deployed(ready=0, starting=1, troubled={"unschedulable": "no GPU"}), ("False", "Unschedulable")),
        (deployed(ready=0, starting=1, troubled={"containers": PULLING}), ("False", "ImagePullFailed")),
        (deployed(ready=0, starting=1), ("False", "NoServersReady")),
        (deployed(ready=0), ("False", "NoServersReady")),
        (scope_of({"replicas": -1}), ("Unknown", "Unknown")),
    ],
)
def test_servers_ready_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert reason_and_message(now, "ServersReady") == expected


def test_more_ready_servers_than_desired_are_not_a_part_of_them() -> None:
    assert condition(deployed({"replicas": 2}, ready=3), "ServersReady") == (
        "True", "ServersReady", "2 servers are desired, and 3 are ready",
    )  # fmt: skip


def test_servers_that_are_partly_ready_say_what_the_others_wait_for() -> None:
    now = deployed({"replicas": 2}, ready=1, starting=1, troubled={"unschedulable": "0/1 nodes: no GPU"})

    assert condition(now, "ServersReady") == (
        "False", "PartiallyReady", "1 of 2 servers are ready: pod starting-0: 0/1 nodes: no GPU",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runtime", "message", "hint"),
    [
        (
            {},
            "pull access denied",
            ". If the registry is private, name a Secret with its credentials in spec.runtime.imagePullSecrets",
        ),
        (
            {"imagePullSecrets": [{"name": "regcred"}, {"name": "other"}]},
            "401 Unauthorized",
            ". Check spec.runtime.imagePullSecrets: kubectl get secret regcred other -n team",
        ),
        (
            {},
            "failed to fetch anonymous token: unexpected status: 403 Forbidden",
            ". If the registry is private, name a Secret with its credentials in spec.runtime.imagePullSecrets",
        ),
        ({}, "manifest unknown", ""),
        ({}, "failed to extract layer: open /var/lib/x: permission denied", ""),
    ],
)
def test_image_pulls_without_credentials_get_advice(runtime: dict[str, object], message: str, hint: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": message}
    containers = [{"name": "triton", "state": {"waiting": waiting}, "image": "r/i"}]
    now = deployed({"runtime": runtime}, ready=0, starting=1, troubled={"containers": containers})

    assert condition(now, "ServersReady")[2] == (
        f"0 of 1 servers are ready: pod starting-0: container triton: ErrImagePull: {message}{hint}"
    )


@pytest.mark.parametrize(
    "image", ["registry/m:1.0.403", "registry/v-401:1", "registry/denied-model:1", "registry/m:403"]
)
def test_names_of_images_are_no_errors_of_a_registry(image: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": f'failed to pull image "{image}": manifest unknown'}
    containers = [{"name": "triton", "state": {"waiting": waiting}, "image": image}]
    now = deployed({}, ready=0, starting=1, troubled={"containers": containers})

    assert condition(now, "ServersReady")[2].endswith(": manifest unknown")


def test_pods_that_cannot_be_created_are_reported_in_the_api_servers_words() -> None:
    failure = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}]}

    assert condition(deployed(ready=0, server=failure), "ServersReady") == (
        "False", "PodCreationFailed", "0 of 1 servers are ready: exceeded quota: gpus",
    )  # fmt: skip


def failed_pod(name: str, at_s: float, reason: str = "UnexpectedAdmissionError", *, disrupted: bool = False) -> Object:
    """A pod that the kubelet rejected at a time before AT."""
    rejected_pod = pod(name, ready=False, phase="Failed")
    rejected_pod["metadata"]["creationTimestamp"] = f"2026-01-02T03:{3 - at_s // 60:02.0f}:05Z"
    rejected_pod["status"] |= {"reason": reason, "message": "no healthy devices present"}
    if disrupted:
        rejected_pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    return rejected_pod


def with_failed_pods(*failed: Object) -> Scope:
    now = deployed({"replicas": 2}, ready=1, starting=1)
    return replace(now, pods=(*now.pods, *failed), now=AT)


def test_servers_that_are_missing_name_the_pod_that_the_kubelet_rejected() -> None:
    now = with_failed_pods(failed_pod("b", 120), failed_pod("a", 60), failed_pod("c", 180))

    servers_ready = condition(now, "ServersReady")

    assert servers_ready is not None
    assert servers_ready[:2] == ("False", "PartiallyReady")
    assert servers_ready[2] == (
        "1 of 2 servers are ready: pod a has failed: UnexpectedAdmissionError: no healthy devices present; "
        "3 pods have failed in the last 10 minutes"
    )


def test_servers_that_are_missing_name_the_node_that_does_not_respond() -> None:
    lost = pod("lost", ready=False)
    lost["spec"] = {"nodeName": "gpu-1"}
    lost["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:03:05Z"},
    ]
    running = {"running": {"startedAt": "2026-01-02T02:00:00Z"}}
    lost["status"]["containerStatuses"] = [
        {"name": "triton", "started": True, "ready": True, "restartCount": 0, "state": running, "lastState": {}}
    ]
    now = deployed({"replicas": 2}, ready=1)

    servers_ready = condition(replace(now, pods=(*now.pods, lost)), "ServersReady")

    assert servers_ready == ("False", "PartiallyReady", "1 of 2 servers are ready: node gpu-1 does not respond")


@pytest.mark.parametrize("now", [AT + 3600, AT])
def test_servers_name_no_old_failed_pods_and_no_drained_ones(now: float) -> None:
    ended = failed_pod("a", 60, "Terminated", disrupted=now == AT)

    assert condition(replace(with_failed_pods(ended), now=now), "ServersReady") == (
        "False", "PartiallyReady", "1 of 2 servers are ready",
    )  # fmt: skip


# BalancerReady


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed(balancers=2), ("True", "BalancerReady")),
        (deployed(balancers=1), ("True", "BalancerReady")),
        (deployed(balancers=0), ("False", "BalancerNotReady")),
        (deployed({"traffic": {"mode": "Direct"}}), ("True", "NoBalancer")),
        (scope_of(), ("Unknown", "Unknown")),
    ],
)
def test_balancer_ready_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert reason_and_message(now, "BalancerReady") == expected


def test_surplus_balancers_are_not_counted_as_ready() -> None:
    assert condition(deployed(balancers=5), "BalancerReady") == ("True", "BalancerReady", "2 of 2 balancers are ready")


def test_balancer_pods_that_cannot_be_created_are_reported() -> None:
    now = deployed(balancers=0)
    failure = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "forbidden"}]}
    now.children[kinds.DEPLOYMENT, "digits-balancer"]["status"] = failure

    assert condition(now, "BalancerReady") == ("False", "BalancerNotReady", "0 of 2 balancers are ready: forbidden")


def test_a_failing_balancer_is_reported_if_none_is_ready() -> None:
    why = (
        "pod digits-balancer-x: container agent terminated: Error (exit code 1): cannot list "
        'resource "endpointslices", 3 restarts'
    )
    now = replace(deployed(balancers=0), balancer_failure=why)
    assert condition(now, "BalancerReady") == ("False", "BalancerNotReady", f"0 of 2 balancers are ready: {why}")
    assert reason_and_message(replace(deployed(balancers=1), balancer_failure=why), "BalancerReady") == (
        "True",
        "BalancerReady",
    )


def test_limitations_of_a_balancer_are_shown_whether_or_not_another_serves() -> None:
    troubles = ("pod digits-balancer-x: Secret digits-tls: key tls.crt is missing",)
    for balancers, so in ((1, "True"), (0, "False")):
        now = replace(deployed(balancers=balancers), balancer_errors=troubles)
        message = f"{balancers} of 2 balancers are ready; {troubles[0]}"
        assert condition(now, "BalancerReady") == (so, "BalancerDegraded", message)


# ScalingActive, AutoscalerConflict, FieldIgnored

INACTIVE = {"conditions": [{"type": "ScalingActive", "status": "False", "message": "FailedGetExternalMetric"}]}
ANOTHER = "HorizontalPodAutoscaler x of ScaledObject y"
ALONE = "Halcyon has stopped scaling the model. Delete the HPA, or remove spec.scaling"
BELOW = f"{ANOTHER} scales Deployment digits-a, which Halcyon manages for this ModelDeployment"
LEFT = "Halcyon has stopped scaling the model. Delete the HPA, or set its target to ModelDeployment digits"
WINDOW = {"name": "day", "start": "0 8 * * *", "duration": "8h", "minReplicas": 2}
ASLEEP = {"replicas": 0, "scaling": {"minReplicas": 0, "maxReplicas": 4}}
OFF = {"replicas": 0, **RULES}
OFF_DECISION = replace(DECIDED, policy="Rules", current=0, desired=0, limited_by=("off",))


def of_mode(mode: str) -> dict[str, Any]:
    return {"scaling": {"maxReplicas": 4, "mode": mode}}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed(), ("True", "FixedReplicas")),
        (deployed(SCALING, external_hpa="HorizontalPodAutoscaler theirs"), ("False", "ExternalAutoscaler")),
        (deployed(deployment_hpas={"digits-a": "HorizontalPodAutoscaler theirs"}), ("False", "ExternalAutoscaler")),
        (deployed(SCALING, signals=REPORTED, scaling=decided(rival="kubectl has set it 3 times")), ("False", "ExternalWriter")),
        (deployed(SCALING), ("Unknown", "Unknown")),
        (deployed(SCALING, signals=REPORTED), ("Unknown", "Unknown")),
        (deployed(SCALING, scaling=decided(UNREPORTED)), ("Unknown", "Unknown")),
        (deployed(SCALING, signals=REPORTED, scaling=decided(BLIND)), ("False", "MetricsMissing")),
        (deployed(of_mode("Paused"), signals=REPORTED, scaling=decided()), ("False", "Paused")),
        (deployed(of_mode("Recommend"), signals=REPORTED, scaling=decided()), ("False", "Recommending")),
        (deployed(SCALING, metrics_api=OURS, signals=REPORTED, scaling=decided(), hpa=INACTIVE), ("False", "HPAInactive")),
        (deployed(ASLEEP, ready=0, metrics_api=OURS, signals=REPORTED, scaling=decided(), hpa=INACTIVE), ("True", "ScalingActive")),
        (deployed(SCALING, metrics_api=OURS, signals=REPORTED, scaling=decided()), ("True", "ScalingActive")),
        (
            deployed(SCALING, metrics_api=OURS, signals=REPORTED, scaling=decided(), hpa={"conditions": [
                {"type": "ScalingActive", "status": "True"}]}),
            ("True", "ScalingActive"),
        ),
        (deployed(SCALING, signals=REPORTED, scaling=decided()), ("True", "ScalingActive")),
        (deployed(OFF, ready=0, signals=REPORTED, scaling=decided(OFF_DECISION)), ("False", "ScalingDisabled")),
        (deployed(OFF, ready=0), ("False", "ScalingDisabled")),
        (deployed(OFF, ready=0, metrics_api=OURS, signals=REPORTED, scaling=decided(), hpa=INACTIVE), ("False", "ScalingDisabled")),
        (deployed({"replicas": 0, **SCALING}, ready=0, signals=REPORTED, scaling=decided()), ("True", "ScalingActive")),
        (
            deployed({"replicas": 0, "scaling": {**RULES["scaling"], "mode": "Paused"}}, ready=0, signals=REPORTED, scaling=decided()),
            ("False", "Paused"),
        ),
        (scope_of({"replicas": -1}), ("Unknown", "Unknown")),
    ],
)  # fmt: skip
def test_scaling_active_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert reason_and_message(now, "ScalingActive") == expected


def test_an_inactive_hpa_is_named_with_its_reason() -> None:
    inactive = condition(
        deployed(SCALING, metrics_api=OURS, signals=REPORTED, scaling=decided(), hpa=INACTIVE), "ScalingActive"
    )
    assert inactive is not None
    message = INACTIVE["conditions"][0]["message"]
    assert inactive[2] == f"HorizontalPodAutoscaler digits can't scale: {message}"


def test_disabled_scaling_names_the_replicas_and_the_command_that_enables_it() -> None:
    message = condition(deployed(OFF), "ScalingActive")[2]
    assert message.startswith("spec.replicas is 0, which disables the policy Rules")
    assert message.endswith("the replicas stay at 1. To enable it, run kubectl scale mdep digits --replicas=1")


def test_disabled_scaling_desires_the_replicas_that_run() -> None:
    report = of(deployed(OFF, signals=REPORTED, scaling=decided(OFF_DECISION)))
    assert report["scaling"]["desired"] == 1
    assert report["summary"]["desired"] == "1"
    assert report["summary"]["ready"] == "1/1"


def test_a_missing_metric_is_named_and_the_replicas_stay() -> None:
    assert condition(deployed(SCALING, signals=REPORTED, scaling=decided(BLIND)), "ScalingActive") == (
        "False", "MetricsMissing", "no decision is possible: queueDepth: no agent for 20 s. The number of replicas is not changed",
    )  # fmt: skip


def test_an_active_scaling_shows_its_decision_and_the_pods_state() -> None:
    stuck = pod("stuck-0", ready=False, unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    now = deployed(SCALING | {"replicas": 4}, ready=2, starting=1, signals=REPORTED, scaling=decided())

    message = condition(replace(now, pods=(*now.pods, stuck)), "ScalingActive")[2]

    assert message == (
        "scaled by Direct: 2 replicas: 30 req/s needs 2; no limit applies; next decision within 5 s. 2 of 4 "
        "desired pods are ready, 1 starting, 1 unschedulable (0/1 nodes are available: 1 Insufficient "
        "nvidia.com/gpu.)"
    )


def test_a_mode_without_writes_shows_its_recommendation() -> None:
    message = condition(deployed(of_mode("Recommend"), signals=REPORTED, scaling=decided()), "ScalingActive")[2]

    assert message == (
        "spec.scaling.mode is Recommend: the replicas stay at 1. The decision would be 2 replicas: "
        "30 req/s needs 2; no limit applies; next decision within 5 s"
    )


@pytest.mark.parametrize(
    ("look_again_at", "within"), [(AT - 1, 1), (AT + 1.0, 1), (AT + 1.5, 2), (AT + 2.0, 5), (math.inf, 5)]
)
def test_the_next_poll_is_shown_as_the_operator_does_it(look_again_at: float, within: int) -> None:
    decision = replace(DECIDED, next_decision_at=look_again_at)
    message = condition(deployed(SCALING, signals=REPORTED, scaling=decided(decision)), "ScalingActive")[2]

    assert message.endswith(f"no limit applies; next decision within {within} s")


def test_the_status_has_no_poll_of_ours_if_the_hpa_decides() -> None:
    decision = replace(DECIDED, desired=None, next_decision_at=AT)
    message = condition(deployed(SCALING, signals=REPORTED, scaling=decided(decision)), "ScalingActive")[2]

    assert "next decision" not in message


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed(external_hpa="HorizontalPodAutoscaler x"), None),
        (deployed(SCALING, signals=REPORTED, scaling=decided()), None),
        (
            deployed(SCALING, external_hpa=ANOTHER),
            ("True", "ExternalAutoscaler", f"{ANOTHER} scales this ModelDeployment; {ALONE}"),
        ),
        (deployed(SCALING, deployment_hpas={"digits-a": ANOTHER}), ("True", "ExternalAutoscaler", f"{BELOW}; {LEFT}")),
        (deployed(deployment_hpas={"digits-a": ANOTHER}), ("True", "ExternalAutoscaler", f"{BELOW}; {LEFT}")),
        (deployed(SCALING, signals=REPORTED, scaling=decided(rival="kubectl did")), ("True", "ExternalWriter", "kubectl did")),
    ],
)  # fmt: skip
def test_a_conflict_names_the_other_writer_of_the_replicas(now: Scope, expected: tuple[str, str, str] | None) -> None:
    types = {c["type"] for c in of(now)["conditions"]}

    assert ("AutoscalerConflict" in types) == (expected is not None)
    if expected is not None:
        assert condition(now, "AutoscalerConflict") == expected


@pytest.mark.parametrize(
    ("scaling", "fields"),
    [
        ({}, []),
        ({"targets": {"latency": "1s"}, "schedules": [WINDOW]}, []),
        ({"behavior": {}}, ["spec.scaling.behavior"]),
        ({"policy": "Rules", "behavior": {}}, []),
        (
            {"policy": "Rules", "targets": {"latency": "1s"}, "schedules": [WINDOW]},
            ["spec.scaling.targets.latency", "spec.scaling.schedules"],
        ),
    ],
)
def test_a_field_without_effect_is_named(scaling: dict[str, Any], fields: list[str]) -> None:
    now = deployed({"scaling": {"maxReplicas": 4, **scaling}})

    if not fields:
        assert "FieldIgnored" not in {c["type"] for c in of(now)["conditions"]}
        return
    status, reason, message = condition(now, "FieldIgnored")
    assert (status, reason) == ("True", "NoEffect")
    assert re.findall(r"(?:^|; )(spec\.[a-zA-Z.]+):", message) == fields


LATE = {"batching": {"maxQueueDelay": "1s"}, "traffic": {"queueTimeout": "1s", "responseTimeout": "1s"}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"batching": {"maxQueueDelay": "999ms"}, "traffic": {"queueTimeout": "1s", "responseTimeout": "1s"}}, []),
        ({"traffic": {"queueTimeout": "10ms", "responseTimeout": "10ms"}}, []),
        (LATE, ["spec.traffic.responseTimeout is 1s"]),
        (LATE | {"traffic": {"queueTimeout": "1s", "responseTimeout": "1s", "mode": "Direct"}}, []),
        (
            LATE | {"scaling": {"maxReplicas": 4, "targets": {"latency": "500ms"}}},
            ["spec.traffic.responseTimeout is 1s", "spec.scaling.targets.latency is 500ms"],
        ),
    ],
    ids=["shorter", "no delay", "as long", "a limit that nobody follows", "both"],
)
def test_a_batch_delay_beyond_the_request_timeout_causes_a_warning(spec: dict[str, Any], fields: list[str]) -> None:
    now = deployed(spec)

    if not fields:
        assert "TimeoutMismatch" not in {c["type"] for c in of(now)["conditions"]}
        return
    status, reason, message = condition(now, "TimeoutMismatch")
    assert (status, reason) == ("True", "QueueDelayTooLong")
    assert re.findall(r"spec\.batching\.maxQueueDelay is 1s but (\S+ is \w+):", message) == fields
    assert "for example maxQueueDelay: 1ms" in message
    assert condition(now, "Accepted")[0] == "True"


def test_a_queue_timeout_shorter_than_a_start_causes_a_warning() -> None:
    spec = {"scaling": {"minReplicas": 0, "maxReplicas": 2}, "traffic": {"queueTimeout": "1m"}}
    now = deployed(spec)
    assert condition(now, "TimeoutMismatch") is None
    started = replace(now, resource={**now.resource, "status": {"coldStart": {"seconds": 95}}})

    status, reason, message = condition(started, "TimeoutMismatch")
    assert (status, reason) == ("True", "QueueTimeoutTooShort")
    assert "the last start of a pod took 95 s" in message


# Ready


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (scope_of({"replicas": -1}), ("False", "Invalid")),
        (deployed(rejected_write="no"), ("True", "Ready")),
        (deployed(rejected_write="no", ready=0, starting=1), ("False", "Forbidden")),
        (replace(deployed(), resource=resource({"batching": {"maxBatchSize": 0}})), ("True", "Ready")),
        (replace(deployed(balancers=0), resource=resource({"batching": {"maxBatchSize": 0}})), ("False", "Invalid")),
        (scope_of(), ("Unknown", "Unknown")),
        (deployed(balancers=0), ("False", "BalancerNotReady")),
        (deployed({"traffic": {"mode": "Direct"}}), ("True", "Ready")),
        (deployed({"replicas": 0}, ready=0), ("True", "ScaledToZero")),
        (deployed(), ("True", "Ready")),
        (deployed({"replicas": 3}, ready=1, starting=2), ("True", "Ready")),
        (deployed(SCALING, external_hpa="theirs"), ("True", "Ready")),
        (
            deployed(ready=0, starting=1, troubled={"init": fetcher("ModelConfigInvalid")}),
            ("False", "ModelConfigInvalid"),
        ),
        (deployed(ready=0, starting=1, troubled={"unschedulable": "no GPU"}), ("False", "Unschedulable")),
        (deployed(ready=0, starting=1), ("False", "NoServersReady")),
    ],
)
def test_ready_follows_its_table(now: Scope, expected: tuple[str, str]) -> None:
    assert reason_and_message(now, "Ready") == expected


# Reconciling


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (scope_of(), "True"),
        (deployed(server={"observedGeneration": 0}), "True"),
        (deployed(ready=1, old=1), "True"),
        (deployed(ready=0, starting=1), "True"),
        (deployed(balancers=0), "True"),
        (deployed(), None),
        (deployed({"replicas": 5}, ready=1), None),
        (deployed({"replicas": 5}, ready=1, starting=4), None),
        (deployed({"replicas": 0}, ready=0), None),
        (scope_of({"replicas": -1}), None),
        (deployed(rejected_write="no"), None),
        (deployed(failing="no answer of a webhook"), "True"),
        (scope_of({"replicas": -1}, failing="no answer of a webhook"), None),
    ],
)
def test_reconciling_is_there_until_the_revision_is_reached(now: Scope, expected: str | None) -> None:
    reconciling = reason_and_message(now, "Reconciling")

    assert (reconciling and reconciling[0]) == expected


# Stalled

LATE = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (scope_of({"replicas": -1}), ("True", "Invalid")),
        (deployed(rejected_write="no"), ("True", "Forbidden")),
        (
            scope_of(children={(kinds.SERVICE, "digits"): conflicting_object(kinds.SERVICE, "digits")}),
            ("True", "Conflict"),
        ),
        (
            scope_of(
                children={(kinds.SERVICE, "digits"): conflicting_object(kinds.SERVICE, "digits", owner_uid="old")}
            ),
            None,
        ),
        (
            deployed(ready=0, starting=1, troubled={"init": fetcher("ModelConfigInvalid")}),
            ("True", "ModelConfigInvalid"),
        ),
        (deployed(ready=0, starting=1, server=LATE), ("True", "ProgressDeadlineExceeded")),
        (deployed(ready=0, starting=1), None),
        (deployed(), None),
    ],
)
def test_stalled_follows_its_table(now: Scope, expected: tuple[str, str] | None) -> None:
    assert reason_and_message(now, "Stalled") == expected


# What tools make of it


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (deployed(), "Current"),
        (deployed({"replicas": 0}, ready=0), "Current"),
        (deployed({"replicas": 5}, ready=1, starting=4), "Current"),
        (deployed(SCALING, external_hpa="theirs"), "Current"),
        (scope_of(), "InProgress"),
        (deployed(ready=0, starting=1), "InProgress"),
        (deployed(ready=1, old=1), "InProgress"),
        (deployed(balancers=0), "InProgress"),
        (
            scope_of(
                children={(kinds.SERVICE, "digits"): conflicting_object(kinds.SERVICE, "digits", owner_uid="old")}
            ),
            "InProgress",
        ),
        (scope_of({"replicas": -1}), "Failed"),
        (scope_of(source=SourceState(missing="no")), "Failed"),
        (deployed(rejected_write="no"), "Failed"),
        (deployed(ready=0, starting=1, troubled={"init": fetcher("ModelConfigInvalid")}), "Failed"),
        (deployed(ready=0, starting=1, server=LATE), "Failed"),
    ],
)
def test_tools_that_read_kstatus_see_what_is(now: Scope, expected: str) -> None:
    assert reconciled(now) == expected


def test_a_new_generation_is_in_progress_before_it_was_looked_at() -> None:
    now = deployed()
    newer = copy.deepcopy(now.resource)
    newer["metadata"]["generation"] = 2

    assert kstatus.compute({**newer, "status": of(now)}) == "InProgress"


@given(
    document=documents(),
    ready=st.integers(0, 3),
    starting=st.integers(0, 2),
    old=st.integers(0, 2),
    reported=st.booleans(),
)
@draws(1)
def test_a_status_always_fits_the_schema(
    document: dict[str, Any], ready: int, starting: int, old: int, reported: bool
) -> None:
    signals = Signals(
        load_errors={"starting-0": "x" * 5000},
        versions=tuple(map(str, range(100))),
        mean_batch=4096.0,
    )
    long_part = PlanPart("rate", 10**6, "u" * 5000)
    huge = (Signal("queueDepth", target=10**6, missing="y" * 5000), Signal("gpuUtilization", 1e6, 80, 10**6, AT))
    capacity = CapacitySource("TimeInPods", 1e9, "c" * 5000, "SharedLimit")
    decision = Decision(
        *(AT, "Planner", 0, 3, "w" * 5000, ("hold", "max", "hold"), (long_part,), huge, "t" * 5000), capacity=capacity
    )
    changes = tuple(Change(AT, 0, 1000, "s" * 5000) for _ in range(10))
    now = deployed(
        document,
        ready=ready,
        starting=starting,
        old=old,
        signals=signals if reported else None,
        metrics_api=ExternalMetricsApi(ours=False, why="z" * 5000),
        scaling=PublishedScaling(decision, changes, "r" * 5000) if reported else PublishedScaling(),
        rejected_write="v" * 5000 if old else "",
    )
    new_status = of(now)

    assert Status.model_validate_json(json.dumps(new_status), strict=True).to_dict() == new_status
    assert {c["type"] for c in new_status["conditions"]} >= {"Ready", "Accepted", "ModelLoaded", "ServersReady"}


# Strangers


def test_a_conflicting_deployment_is_ignored() -> None:
    strangers = {
        (kinds.DEPLOYMENT, name): conflicting_object(kinds.DEPLOYMENT, name) for name in ("digits-a", "digits-balancer")
    }
    now = scope_of(children=strangers)

    assert reason_and_message(now, "BalancerReady") == ("Unknown", "Unknown")
    assert "current" not in of(now)["revision"]


# Values


def test_replicas_are_counted_by_what_they_are() -> None:
    now = deployed({"replicas": 4}, ready=1, starting=2, old=1, troubled={"unschedulable": "no GPU"})

    assert of(now)["pods"] == {"total": 4, "ready": 2, "updated": 3, "unschedulable": 2, "pending": 2}
    assert (of(now)["replicas"], of(now)["readyReplicas"]) == (4, 2)
    assert of(now)["summary"]["ready"] == "2/4"


def test_pods_that_leave_are_not_counted() -> None:
    now = deployed()
    leaving = pod("leaving", ready=True, deleted=True)

    assert of(replace(now, pods=(*now.pods, leaving)))["replicas"] == 1


def test_the_selector_and_the_addresses_are_those_of_the_children() -> None:
    new_status = of(deployed())

    assert new_status["selector"] == "serving.halcyon.dev/model-deployment=digits,app.kubernetes.io/component=server"
    assert new_status["address"] == {"url": "http://digits.team.svc:8000", "grpc": "digits.team.svc:8001"}
    secured = of(deployed({"traffic": {"tls": {"secretName": "digits-tls"}}}))
    assert secured["address"]["url"] == "https://digits.team.svc:8000"
    assert new_status["runtimeImage"] == "localhost/tritonserver-cpu:24.10"


def test_a_spec_that_was_never_accepted_has_only_its_reason() -> None:
    new_status = of(scope_of({"replicas": -1}))

    assert set(new_status) == {
        "observedGeneration",
        "conditions",
        "pods",
        "replicas",
        "readyReplicas",
        "selector",
        "summary",
    }
    assert new_status["summary"] == {"ready": "0/0", "state": "Invalid"}


def test_columns_show_signals_per_replica_and_question_marks_if_missing() -> None:
    summary = of(deployed(SCALING | {"replicas": 2}, ready=2, signals=REPORTED, scaling=decided()))["summary"]
    missing = replace(DECIDED, signals=(Signal("queueDepth", missing="x"), Signal("gpuUtilization", missing="x")))

    assert (summary["queue"], summary["gpu"], summary["batch"]) == ("12/16", "75", "3.2")
    unknown = of(deployed(SCALING, signals=Signals(), scaling=decided(missing)))["summary"]
    assert (unknown["queue"], unknown["gpu"]) == ("?", "?")
    assert "batch" not in unknown
    zero = replace(DECIDED, signals=(Signal("queueDepth", 0.0, 8, shown=0.0), Signal("gpuUtilization", target=80)))
    assert "gpu" not in of(deployed(SCALING, signals=Signals(), scaling=decided(zero)))["summary"]


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (deployed(), "Ready"),
        (deployed(ready=0, starting=1), "Progressing"),
        (deployed(ready=0, starting=1, troubled={"containers": PULLING}), "ImagePullFailed"),
        (deployed(ready=0, starting=1, server=LATE), "ProgressDeadlineExceeded"),
        (deployed({"replicas": 0}, ready=0), "ScaledToZero"),
    ],
)
def test_the_state_is_the_reason_that_matters_most(now: Scope, state: str) -> None:
    assert of(now)["summary"]["state"] == state


@pytest.mark.parametrize(
    ("spec", "is_served_before", "state"),
    [
        (None, True, "NoServersReady"),
        (None, False, "Progressing"),
        (SCALING, True, "NoServersReady"),
        ({"scaling": {"minReplicas": 0, "maxReplicas": 4}}, True, "Progressing"),
    ],
)
def test_the_state_in_an_outage_is_not_that_of_a_start(
    spec: dict[str, Any] | None, is_served_before: bool, state: str
) -> None:
    now = deployed(spec, ready=0, starting=1)
    record = RolloutRecord().begin(AT - 60).finish(AT - 30, SLOT_A) if is_served_before else RolloutRecord()
    now = replace(now, revisions=tuple(record.on(r) for r in now.revisions))
    assert condition(now, "Reconciling") is not None
    assert of(now)["summary"]["state"] == state


def test_versions_are_in_the_order_of_their_numbers() -> None:
    assert of(deployed(signals=Signals(versions=("10", "9", "1"))))["model"]["versions"] == ["1", "9", "10"]


def test_the_autoscalers_desired_replicas_and_reason_are_shown() -> None:
    hpa = {
        "desiredReplicas": 3,
        "conditions": [
            {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "the same size"},
            {
                "type": "ScalingLimited",
                "status": "True",
                "reason": "TooManyReplicas",
                "message": "more than the maximum",
            },
        ],
    }
    left_to_it = Decision(AT, "Rules", 1, None, "queueDepth 78 at 16 per replica needs 5", signals=SIGNALS)
    scaling = of(deployed(RULES, metrics_api=OURS, hpa=hpa, scaling=decided(left_to_it)))["scaling"]

    assert (scaling["actuator"], scaling["desired"], scaling["limitedBy"]) == ("HPA", 3, ["max"])
    assert scaling["why"] == "3 replicas: queueDepth 78 at 16 per replica needs 5; HPA: more than the maximum"
    assert scaling["actuatorReason"].startswith("Auto: Halcyon serves")
    assert scaling["signals"][0] == {
        "name": "queueDepth", "target": "8", "source": "agents", "value": "12.0", "observedAt": NOW,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("able", "why", "limits"),
    [
        (("True", "SucceededRescale", "able to update the scale"), "1 replica: decided by the HPA", None),
        (
            ("True", "ScaleDownStabilized", "recent recommendations were higher"),
            "1 replica: HPA: recent recommendations were higher",
            ["stabilisation"],
        ),
        (("False", "FailedGetScale", "no such scale"), "1 replica: HPA: no such scale", None),
    ],
)
def test_the_informative_messages_of_an_hpa_are_shown(
    able: tuple[str, str, str], why: str, limits: list[str] | None
) -> None:
    fields = dict(zip(("status", "reason", "message"), able, strict=True))
    hpa = {"desiredReplicas": 1, "conditions": [{"type": "AbleToScale"} | fields]}
    scaling = of(deployed(RULES, metrics_api=OURS, hpa=hpa))["scaling"]
    assert (scaling["why"], scaling.get("limitedBy")) == (why, limits)


@pytest.mark.parametrize(
    ("capacity", "shown", "reason"),
    [
        (CapacitySource("BatchStatistics", 62.5, "8 requests in 0.128 s"), "62.5", None),
        (CapacitySource("TimeInPods", 2.0, "a pod answers 2 req/s", "AnswersDisagree"), "2", "AnswersDisagree"),
        (CapacitySource("Answers", 999.7, "a pod answers 1000 req/s"), "1000", None),
        (CapacitySource("Answers", 12345.6, "they share a limit", "SharedLimit"), "12346", "SharedLimit"),
        (CapacitySource("Answers", 999.7, "they share a limit", "SharedLimit"), "1000", "SharedLimit"),
        (CapacitySource("TimeInPods", 0.0000333, "a pod answers slowly"), "0.0000333", None),
        (CapacitySource("Unknown", None, "no pod has been full", "AnswersDisagree"), None, "AnswersDisagree"),
    ],
)
def test_the_capacity_of_a_replica_is_shown_with_its_source(
    capacity: CapacitySource, shown: str | None, reason: str | None
) -> None:
    now = deployed(SCALING, scaling=decided(replace(DECIDED, capacity=capacity)))
    known = {} if shown is None else {"requestsPerSecond": shown, "observedAt": NOW}

    assert of(now)["capacity"] == {"source": capacity.name, "why": capacity.why} | known
    expected = None if reason is None else ("True", reason, capacity.why)
    assert condition(now, "CapacityContradicted") == expected


LINE = MeasuredLine(instances=1, constant_milliseconds=80, per_row_milliseconds=6, max_batch_size=8)
SERVED = Served("digits-5d7c", "localhost/tritonserver:24.10", "", 1)
MEASURED = MeasuredCapacity(
    source="bench", measured_at="2026-01-01T00:00:00Z", revision=SERVED.revision, image=SERVED.image,
    gpu_product="NVIDIA-H200", lines=(LINE, LINE.model_copy(update={"instances": 2, "constant_milliseconds": 95.0})),
)  # fmt: skip


def test_a_measured_capacity_is_shown_before_any_decision() -> None:
    scaling = {"scaling": {"minReplicas": 1, "maxReplicas": 4, "targets": {"latency": "500ms"}}}
    now = deployed(scaling, measured=Measured(SERVED, MEASURED, LINE))
    shown = of(now)["capacity"]
    sustained = float(shown.pop("sustainedRequestsPerSecond"))

    assert 25 < sustained < 60
    assert shown == {
        "source": "Bench",
        "why": "8 requests in 0.128 s on one instance, as halcyon bench measured it",
        "requestsPerSecond": "62.5",
        "lines": [
            {"instances": 1, "constantMilliseconds": "80", "perRowMilliseconds": "6", "maxBatchSize": 8},
            {"instances": 2, "constantMilliseconds": "95", "perRowMilliseconds": "6", "maxBatchSize": 8},
        ],
        "observedAt": "2026-01-01T00:00:00Z",
        "revision": SERVED.revision,
        "image": SERVED.image,
        "gpuProduct": "NVIDIA-H200",
    }


def test_the_time_of_a_measurement_has_the_form_of_the_schema() -> None:
    document = MEASURED.model_copy(update={"measured_at": "2026-01-01T01:30+01:30"})
    now = deployed(SCALING, measured=Measured(SERVED, document, LINE))

    assert of(now)["capacity"]["observedAt"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("cost", "shown"), [(0.0000284, "0.000028"), (0.5, "0.5"), (33.3, "33"), (123.4, "120"), (2880.0, "2900")]
)
def test_a_cost_is_shown_without_an_exponent(cost: float, shown: str) -> None:
    costs = PublishedCosts(Cost(1, 4.0, cost, None, None, None, None), "EUR")

    assert of(deployed(costs=costs))["cost"]["perThousandInferences"] == shown


def test_the_line_of_a_capacity_has_the_instances_that_the_planner_uses() -> None:
    line = ServiceLine(0.08, 0.006)
    aims = Objectives(low=1, high=4, max_batch=8, instances=1)
    capacity = CapacitySource("BatchStatistics", 62.5, "by batches", None, Replica(line, 8), line, aims)
    # The spec has four instances, and its revision was rolled back.
    requested = Measured(Served("digits-5d7c", "localhost/tritonserver:24.10", "", 4))
    now = deployed(SCALING, scaling=decided(replace(DECIDED, capacity=capacity)), measured=requested)
    assert of(now)["capacity"]["lines"] == [
        {"instances": 1, "constantMilliseconds": "80", "perRowMilliseconds": "6", "maxBatchSize": 8}
    ]


def test_an_ignored_capacity_is_shown_with_its_reason() -> None:
    now = deployed(SCALING, measured=Measured(SERVED, ignored="ConfigMap digits-capacity is ignored: it has no key"))
    assert of(now)["capacity"] == {"ignored": "ConfigMap digits-capacity is ignored: it has no key"}


def test_the_capacity_in_the_status_stays_below_2_kib() -> None:
    lines = tuple(LINE.model_copy(update={"instances": n, "constant_milliseconds": 1e5 / 3}) for n in range(1, 9))
    document = MEASURED.model_copy(update={"lines": lines, "gpu_product": "g" * 63})
    served = Served("r" * 63, "i" * 255, "g" * 63, 1)
    source = CapacitySource("AnswersDisagree", 1e5 / 3, "w" * 5000)
    now = deployed(
        SCALING,
        measured=Measured(served, document, lines[0], "x" * 5000),
        scaling=decided(replace(DECIDED, capacity=source)),
    )
    assert len(json.dumps(of(now)["capacity"])) <= 2048


def test_a_model_without_scaling_and_measurement_has_no_capacity() -> None:
    assert "capacity" not in of(deployed())
    assert "capacity" not in of(deployed(RULES))


def test_an_autoscaler_that_has_decided_nothing_yet_wants_nothing() -> None:
    assert "desired" not in of(deployed(RULES, metrics_api=OURS, hpa={"desiredReplicas": 0}))["scaling"]


def test_an_hpa_that_never_computed_its_replicas_wants_nothing() -> None:
    failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no metric"}
    hpa = {"desiredReplicas": 0, "currentReplicas": 1, "conditions": [failed]}
    assert "desired" not in of(deployed(RULES, metrics_api=OURS, hpa=hpa))["scaling"]
    assert of(deployed(RULES, metrics_api=OURS, hpa=hpa | {"currentReplicas": 0}))["scaling"]["desired"] == 0


def test_a_decision_is_shown_with_its_parts_limits_and_predecessors() -> None:
    parts = (PlanPart("rate", 2, "30 req/s needs 2"), PlanPart("backlog", 1, "3 waiting needs 1"))
    verdict = replace(DECIDED, parts=parts, limited_by=("hold", "max", "hold"))
    scaling = of(deployed(SCALING, scaling=decided(verdict, Change(AT, 1, 2, "it rose"))))["scaling"]

    assert (scaling["actuator"], scaling["policy"], scaling["mode"]) == ("Direct", "Planner", "Active")
    assert (scaling["current"], scaling["desired"], scaling["limitedBy"]) == (1, 2, ["hold", "max"])
    assert scaling["why"] == "2 replicas: 30 req/s needs 2; no limit applies"
    assert scaling["parts"][1] == {"name": "backlog", "replicas": 1, "why": "3 waiting needs 1"}
    assert scaling["decisions"] == [{"time": NOW, "before": 1, "after": 2, "why": "it rose"}]
    assert scaling["decidedAt"] == NOW


def test_a_decision_with_all_parts_fits_the_schema() -> None:
    """The API server rejects the whole status if a single value exceeds the schema."""
    names = ("rate", "trend", "season", "spike", "backlog", "queueDepth", "concurrency", "metric", "gpuUtilization", "batch")  # fmt: skip
    verdict = replace(DECIDED, parts=tuple(PlanPart(name, 2, f"{name} needs 2") for name in names))
    new_status = of(deployed(SCALING, scaling=decided(verdict)))
    assert [part["name"] for part in new_status["scaling"]["parts"]] == [*names]
    Status.model_validate_json(json.dumps(new_status), strict=True)


def test_a_signal_that_requires_millions_of_replicas_fits_the_schema() -> None:
    targets = ResolvedTargets(queue_depth=1, gpu_utilization=None, metric=1)
    reading = RulesReading(AT, 1, Value(0.0, AT), None, metric=Value(8e9, AT))
    proposals = signal_proposals(reading, targets)
    assert [term.proposal for term in proposals] == [0, 2**31 - 1]
    signal = replace(SIGNALS[0], name="metric", proposal=proposals[1].proposal)
    verdict = replace(DECIDED, parts=(PlanPart("metric", 2**31 - 1, "m"),), signals=(signal,))
    Status.model_validate_json(json.dumps(of(deployed(SCALING, scaling=decided(verdict)))), strict=True)


def test_a_young_process_adds_nothing_about_an_unreported_model() -> None:
    before = deployed(SCALING, signals=REPORTED, scaling=decided())
    published = of(before)
    young = replace(before, signals=None, scaling=replace(decided(UNREPORTED), settling=True))
    young = replace(young, resource={**young.resource, "status": published})

    new_status = of(young)

    assert new_status["scaling"] == published["scaling"]
    assert new_status["summary"] == published["summary"]
    assert condition(young, "ScalingActive") == condition(before, "ScalingActive")
    later = replace(young, scaling=decided(UNREPORTED))
    assert condition(later, "ScalingActive")[0] == "Unknown"
    assert of(later)["scaling"] != published["scaling"]


def test_pause_is_confirmed_also_by_a_young_process() -> None:
    """`halcyon pause` waits for the mode in the status, also just after a change of the leader."""
    published = of(deployed(SCALING, signals=REPORTED, scaling=decided()))
    paused = {"scaling": {**SCALING["scaling"], "mode": "Paused"}}
    young = deployed(paused, scaling=PublishedScaling(settling=True))
    young = replace(young, resource={**young.resource, "status": published})

    assert of(young)["scaling"] == {**published["scaling"], "mode": "Paused"}


def test_fixed_replicas_are_shown_also_by_a_young_process() -> None:
    published = of(deployed(SCALING, signals=REPORTED, scaling=decided()))
    published["capacity"] = {"source": "BatchStatistics", "requestsPerSecond": "62"}
    young = deployed({"replicas": 3}, scaling=PublishedScaling(settling=True))
    young = replace(young, resource={**young.resource, "status": published})

    new_status = of(young)

    assert new_status["summary"]["desired"] == "3", "no decision is awaited, so nothing would correct an old value"
    assert not {"range", "queue", "gpu"} & new_status["summary"].keys()
    assert new_status["summary"]["batch"] == published["summary"]["batch"]
    assert "capacity" not in new_status


def test_a_young_process_without_a_status_shows_what_it_knows() -> None:
    young = deployed(SCALING, scaling=replace(decided(UNREPORTED), settling=True))

    assert condition(young, "ScalingActive") == ("Unknown", "Unknown", "no balancer agent has reported yet")
    assert "desired" not in of(young)["scaling"]


def test_a_condition_of_another_version_or_spec_is_not_taken_over() -> None:
    before = deployed(SCALING, signals=REPORTED, scaling=decided())
    for change in ({"reason": "NotYetInvented"}, {"observedGeneration": 99}):
        published = of(before)
        published["conditions"] = [c | change if c["type"] == "ScalingActive" else c for c in published["conditions"]]
        young = replace(before, signals=None, scaling=replace(decided(UNREPORTED), settling=True))
        young = replace(young, resource={**young.resource, "status": published})
        assert condition(young, "ScalingActive")[:2] == ("Unknown", "Unknown")


def test_scaling_is_absent_without_an_actuator() -> None:
    assert "scaling" not in of(deployed())
    assert "scaling" not in of(deployed(SCALING, external_hpa="theirs"))


def test_a_complete_rollouts_revision_is_in_force_whatever_the_deployments_counts() -> None:
    now = deployed({"replicas": 2}, ready=1, starting=1, server={"readyReplicas": 0})
    new_status = of(now)
    assert (new_status["rollout"]["phase"], new_status["revision"].get("current")) == (
        "Complete",
        new_status["revision"]["target"],
    )
    nobody = of(deployed({"replicas": 2}, ready=0, starting=2, server={"readyReplicas": 1}))
    assert (nobody["rollout"]["phase"], nobody["revision"].get("current")) == ("Progressing", None)


def test_the_serving_revision_is_shown_until_the_next_is_reached() -> None:
    settled = deployed()
    target = make(settled).target
    assert target is not None
    assert of(settled)["revision"] == {"current": f"digits-{target.key}", "target": f"digits-{target.key}"}

    before = {"revision": {"current": "digits-0123456789"}}
    rolling = deployed(ready=0, starting=1, old=1)
    rolling = replace(rolling, resource={**rolling.resource, "status": before})
    assert of(rolling)["revision"] == {"current": "digits-0123456789", "target": f"digits-{target.key}"}


def test_times_of_conditions_that_did_not_change_stay() -> None:
    now = deployed()
    written = of(now)
    later = status.make(
        replace(now, resource={**now.resource, "status": written}), make(now), now="2027-01-01T00:00:00Z"
    )

    assert later == written


def test_every_reason_that_a_condition_gives_is_documented() -> None:
    assert all(reason.value[0].isupper() and reason.value.isalnum() for reason in Reason)


DIED = "a Python stub process exited with code 139"


def test_the_only_pod_with_a_dead_backend_makes_the_model_unready() -> None:
    now = deployed(signals=Signals(dead={"ready-0": DIED}))
    message = f"0 of 1 servers are ready: the backend of pod ready-0 is dead: {DIED}; its container is being restarted"
    assert condition(now, "Ready") == condition(now, "ServersReady") == ("False", "BackendDead", message)
    assert (of(now)["summary"]["ready"], of(now)["summary"]["state"]) == ("0/1", "BackendDead")


def test_a_restarting_container_keeps_the_reason_of_its_dead_backend() -> None:
    now = deployed({"replicas": 1}, ready=0, starting=1, signals=Signals(restarting={"starting-0": DIED}))
    assert reason_and_message(now, "ServersReady") == ("False", "BackendDead")
    assert DIED in (condition(now, "ServersReady") or ("",))[-1]


def test_a_dead_backend_beside_a_pod_that_serves_is_named() -> None:
    now = deployed({"replicas": 2}, ready=2, signals=Signals(dead={"ready-1": DIED}))
    assert reason_and_message(now, "ServersReady") == ("False", "PartiallyReady")
    ready = condition(now, "Ready")
    assert ready is not None
    assert (ready[0], DIED in ready[2]) == ("True", True)


def test_pods_that_fail_every_request_without_a_proof_stay_ready() -> None:
    now = deployed(signals=Signals(failing={"ready-0": "every request fails"}))
    failing = condition(now, "RequestsFailing")
    assert failing is not None
    assert failing[:2] == ("True", "BackendErrors")
    assert failing[2].startswith("requests fail in 1 of 1 pods, for example in pod ready-0: every request fails.")
    assert reason_and_message(now, "Ready") == ("True", "Ready")
    assert condition(deployed(), "RequestsFailing") is None
    signals = Signals(failing={"ready-0": "every request fails", "gone-0": "every request fails"})
    assert (condition(deployed(signals=signals), "RequestsFailing") or ("",))[-1].startswith(
        "requests fail in 1 of 1 pods"
    )
