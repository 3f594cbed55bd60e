"""The trial pod of a model: the server as the operator renders it, with explicit model control, beside the client."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from halcyon.control.desired import plan as reconciled
from halcyon.control.objects import resource_quotas
from halcyon_cli.bench.place import admission, client_job, copied_model, trial_pod
from halcyon_cli.bench.place.client_job import ClientSettings
from halcyon_cli.bench.place.trial_pod import TrialPod
from halcyon_cli.plan.cluster_scope import offline_scope
from tests.unit.cli.bench.place.served_models import served
from tests.unit.render.pod_security import violations

CLIENT = ClientSettings(
    model="digits",
    namespace="team",
    image="r.example.com/halcyon-bench:dev",
    arguments=("bench", "--url", "http://127.0.0.1:8000", "--to-log"),
    measured="digits-bench",
    files={"000-x.npy": b"\x01"},
    pull_secrets=("reg",),
)
JOB = {"metadata": {"name": "digits-bench", "uid": "j-1"}}


def planned_pod(spec: dict[str, Any] | None = None) -> TrialPod:
    copy = copied_model.copied(served(spec=spec), [], priority_class="halcyon-bench")
    scope = offline_scope(copy.document, []).scope
    plan = reconciled.make(replace(scope, site=replace(scope.site, model_pod_labels=("queue",))))
    assert plan.acceptance.accepted, plan.acceptance.message
    return trial_pod.trial_pod([*plan.first, *plan.then], CLIENT, model=copy.model)


def server(pod: TrialPod) -> dict[str, Any]:
    container: dict[str, Any] = next(entry for entry in pod.spec["initContainers"] if entry["name"] == "triton")
    return container


def test_objects_are_valid() -> None:
    pod = planned_pod()
    job = client_job.job(CLIENT, template=pod.template)
    assert job["spec"]["template"] is pod.template
    for obj in (job, trial_pod.network_policy(pod, CLIENT, JOB), *pod.config_maps):
        kubernetes_validate.validate(obj, "1.31", strict=True)


def test_pod_is_restricted_and_has_no_token() -> None:
    pod = planned_pod()
    spec = pod.spec
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert violations(pod.template) == []
    assert all(
        container["securityContext"]["readOnlyRootFilesystem"]
        for container in (*spec["initContainers"], *spec["containers"])
    )
    assert not any("projected" in volume for volume in spec["volumes"])


def test_labels_are_those_of_a_measurement_and_of_no_model() -> None:
    pod = planned_pod({"runtime": {"podLabels": {"queue": "low"}, "resources": {"limits": {"cpu": "2"}}}})
    assert pod.template["metadata"]["labels"] == {"queue": "low"} | client_job.labels("digits")
    policy = trial_pod.network_policy(pod, CLIENT, JOB)["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.template["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert "egress" not in policy


def test_server_has_explicit_control_on_localhost_only() -> None:
    args = server(planned_pod())["args"]
    assert [arg for arg in args if arg.startswith("--model-control-mode")] == ["--model-control-mode=explicit"]
    assert "--load-model=digits" in args
    for kind in ("http", "grpc", "metrics"):
        assert f"--{kind}-address=127.0.0.1" in args
    assert not any("restricted" in arg for arg in args)
    env = {variable["name"]: variable.get("value") for variable in server(planned_pod())["env"]}
    assert env["HALCYON_POD_IP"] == "127.0.0.1"


def test_server_is_a_sidecar_without_probes_after_the_fetcher() -> None:
    pod = planned_pod()
    assert [container["name"] for container in pod.spec["initContainers"]] == ["fetch", "triton"]
    assert server(pod)["restartPolicy"] == "Always"
    assert not {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports"} & server(pod).keys()
    assert [container["name"] for container in pod.spec["containers"]] == ["client"]
    assert pod.spec["restartPolicy"] == "Never"


def test_client_shares_memory_and_processes_with_the_server() -> None:
    pod = planned_pod()
    (client,) = pod.spec["containers"]
    shared = {"name": "shm", "mountPath": "/dev/shm"}
    assert shared in client["volumeMounts"]
    assert shared in server(pod)["volumeMounts"]
    assert pod.spec["shareProcessNamespace"] is True
    names = [volume["name"] for volume in pod.spec["volumes"]]
    assert len(names) == len(set(names))
    assert {mount["name"] for mount in client["volumeMounts"]} <= set(names)
    assert {mount["mountPath"] for mount in client["volumeMounts"]} == {"/tmp", "/etc/halcyon/files", "/dev/shm"}


def test_placement_and_resources_are_those_of_the_model() -> None:
    pod = planned_pod({"runtime": {"gpu": {"count": 2}, "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}})
    assert server(pod)["resources"]["limits"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "2"}
    assert pod.spec["priorityClassName"] == "halcyon-bench"
    assert pod.spec["imagePullSecrets"] == [{"name": "reg"}]
    assert [toleration["key"] for toleration in pod.spec["tolerations"]] == ["nvidia.com/gpu"]
    assert admission.gpus([admission.trial_pods(pod)]) == {"nvidia.com/gpu": 2}
    charged = resource_quotas.charges(pod.spec)
    assert charged["limits.cpu"] == 3
    assert charged["requests.nvidia.com/gpu"] == 2


def test_config_maps_of_the_configuration_are_owned_by_the_job() -> None:
    pod = planned_pod({"batching": {"maxBatchSize": 8}})
    (overlay,) = pod.config_maps
    mounted = [volume["configMap"]["name"] for volume in pod.spec["volumes"] if volume["name"] == "overlay"]
    assert [overlay["metadata"]["name"]] == mounted
    assert json.loads(overlay["data"]["overlay.json"])["max_batch_size"] == 8
    owner = trial_pod.owned(overlay, JOB)["metadata"]["ownerReferences"]
    assert owner == [{"apiVersion": "batch/v1", "kind": "Job", "name": "digits-bench", "uid": "j-1"}]


def status(name: str, **state: Any) -> dict[str, Any]:
    return {"status": {"initContainerStatuses": [{"name": name, "image": "r/x:1", "state": {}, **state}]}}


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (status("fetch", state={"terminated": {"exitCode": 1, "message": "no file"}}), "can't be fetched: no file"),
        (status("fetch", state={"terminated": {"exitCode": 0}}), ""),
        (status("triton", state={"waiting": {"reason": "ErrImagePull", "message": "no"}}), "can't pull r/x:1"),
        (status("triton", state={"running": {}}), ""),
    ],
)
def test_problem_of_a_pod_names_the_fetcher_or_the_image(pod: dict[str, Any], message: str) -> None:
    assert message in trial_pod.problem(pod)
    assert bool(message) == bool(trial_pod.problem(pod))


def test_server_that_was_started_again_is_named_with_its_reason() -> None:
    ended = status("triton", restartCount=2, lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}})
    assert trial_pod.restarts(ended) == "the server ended 2 times in the trial pod, last with OOMKilled"
    assert trial_pod.restarts(status("triton", restartCount=0)) == ""
