"""BatchInferences at a real API server: the Job of each, what it follows, and what ends it. The pods are KWOK's and run nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster.cluster import Cluster
from halcyon.api.documents.batch_documents import BatchProgress
from halcyon.kube import kinds
from tests.integration.operator_process import Operator, running
from tests.integration.operator_space import Space, batch_inference, deployment, files
from tests.integration.waiting import until

pytestmark = pytest.mark.more

JOB = "night-batch"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Start an operator with an image for runners."""
    folder: Path = tmp_path_factory.mktemp("operator")
    with running(cluster, folder, more=("--bench-image=localhost/halcyon-bench:dev",)) as started:
        yield started


def status(space: Space) -> dict[str, Any]:
    reported: dict[str, Any] = space.must(kinds.BATCH_INFERENCE, "night").get("status") or {}
    return reported


def reasons(space: Space) -> dict[str, str]:
    return {condition["type"]: condition["reason"] for condition in status(space).get("conditions") or ()}


def wait_reason(space: Space, kind: str, reason: str) -> None:
    until(
        lambda: reasons(space),
        lambda current: current.get(kind) == reason,
        goal=f"{kind} is {reason}",
        limit_s=30,
        context=lambda: str(status(space)),
    )


def wait_event(space: Space, kind: str, reason: str) -> None:
    def events() -> list[tuple[str, str]]:
        about = {"kind": "BatchInference", "name": "night"}
        return [
            (event["type"], event["reason"])
            for event in space.every(kinds.EVENT)
            if about.items() <= event["regarding"].items()
        ]

    until(events, lambda seen: (kind, reason) in seen, goal=f"there is an Event {reason}", limit_s=30)


def pod(space: Space) -> dict[str, Any]:
    """Return the runner's pod, when there is one."""

    def find() -> dict[str, Any] | None:
        pods = [
            obj
            for obj in space.every(kinds.POD)
            if obj["metadata"]["labels"].get("serving.halcyon.dev/batch-inference") == "night"
            and not obj["metadata"].get("deletionTimestamp")
        ]
        return pods[-1] if pods else None

    return until(find, bool, goal="the Job has a pod") or {}


def end(space: Space, code: int, progress: BatchProgress) -> None:
    """End the runner as the kubelet reports it: with an exit status and a termination message."""
    name = pod(space)["metadata"]["name"]
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": progress.to_json()}
    container = {
        "name": "runner",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    body = {"status": {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [container]}}
    space.merge(kinds.POD, name, body, subresource="status")


def test_a_batch_goes_from_its_model_over_a_failure_to_its_end(space: Space) -> None:
    space.apply(batch_inference())
    wait_reason(space, "Complete", "ModelNotFound")
    assert space.get(kinds.JOB, JOB) is None

    space.apply(files(), deployment())
    job = until(lambda: space.get(kinds.JOB, JOB), bool, goal="the runner is made", limit_s=30) or {}
    assert job["metadata"]["ownerReferences"][0]["name"] == "night"
    wait_reason(space, "Complete", "Pending")

    space.apply(batch_inference(suspend=True))
    wait_reason(space, "Suspended", "Suspended")
    until(lambda: space.must(kinds.JOB, JOB)["spec"]["suspend"], bool, goal="the Job is suspended")
    space.apply(batch_inference(suspend=False))
    until(
        lambda: space.must(kinds.JOB, JOB)["spec"]["suspend"], lambda suspended: not suspended, goal="the Job goes on"
    )

    end(
        space,
        2,
        BatchProgress(total=1000, done=300, failed=101, reason="TooManyFailures", message="101 rows have no result"),
    )
    wait_reason(space, "Failed", "TooManyFailures")
    assert status(space)["rows"] == {"total": 1000, "done": 300, "failed": 101}
    assert status(space)["conditions"][0]["message"] == "101 rows have no result"
    wait_event(space, "Warning", "TooManyFailures")

    space.apply(batch_inference(maxFailures=500))
    until(
        lambda: space.get(kinds.JOB, JOB) or job,
        lambda current: current["metadata"]["uid"] != job["metadata"]["uid"],
        goal="another runner goes on",
        limit_s=30,
    )
    end(space, 0, BatchProgress(total=1000, done=899, failed=101, is_complete=True))
    wait_reason(space, "Complete", "Completed")
    assert status(space)["progress"] == "1000/1000"
    wait_event(space, "Normal", "Completed")
    assert "completionTime" in status(space)

    space.delete(kinds.BATCH_INFERENCE, "night")
    until(
        lambda: space.get(kinds.JOB, JOB),
        lambda current: current is None,
        goal="the Job goes with its owner",
        limit_s=30,
    )


def test_a_failed_batch_goes_on_after_it_was_suspended(space: Space) -> None:
    space.apply(files(), deployment(), batch_inference())
    first = until(lambda: space.get(kinds.JOB, JOB), bool, goal="the runner is made", limit_s=30) or {}
    end(space, 2, BatchProgress(reason="OutputFull", message="no space"))
    wait_reason(space, "Failed", "OutputFull")
    space.apply(batch_inference(suspend=True))
    wait_reason(space, "Suspended", "Suspended")
    space.apply(batch_inference(suspend=False))
    second = until(
        lambda: space.get(kinds.JOB, JOB) or first,
        lambda current: current["metadata"]["uid"] != first["metadata"]["uid"] and not current["spec"].get("suspend"),
        goal="another runner goes on",
        limit_s=30,
    )
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_metrics_of_a_model_show_its_failed_batch_until_it_is_deleted(operator: Operator, space: Space) -> None:
    space.apply(files(), deployment(), batch_inference())
    end(space, 2, BatchProgress(reason="OutputFull", message="no space"))
    wait_reason(space, "Failed", "OutputFull")
    labels = {"namespace": space.namespace, "model_deployment": "m", "batch": "night"}
    failed = labels | {"type": "Failed", "status": "True", "reason": "OutputFull"}

    def exported() -> list[dict[str, str]]:
        families = text_string_to_metric_families(operator.fetch("/metrics"))
        samples = (s for f in families if f.name == "halcyon_model_batch_condition" for s in f.samples)
        return [sample.labels for sample in samples if labels.items() <= sample.labels.items()]

    until(exported, lambda seen: failed in seen, goal="the failure is a series", limit_s=30)
    space.delete(kinds.BATCH_INFERENCE, "night")
    until(exported, lambda seen: not seen, goal="its series end", limit_s=30)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modelDeployment": "n"}, "spec.modelDeployment can't be changed, because results exist"),
        ({"workers": 0}, "spec.workers"),
        ({"hooks": {"configMap": "h"}}, "spec.hooks has neither prepare nor finish"),
        ({"deadline": "tomorrow"}, "spec.deadline"),
        ({"input": {"format": "Npz"}}, "spec.input needs exactly one of persistentVolumeClaim, uri"),
        ({"output": {"uri": "az://results/night"}}, "spec.output.uri is az://results/night but endpoint is not set"),
        ({"input": {"uri": "s3://sets/a.npz", "credentials": {}}}, "credentials of a BatchInference has neither"),
    ],
)
def test_the_api_server_refuses_what_the_rules_forbid(space: Space, changed: dict[str, Any], message: str) -> None:
    space.apply(batch_inference())
    answer = space.try_apply(batch_inference(**changed))
    assert answer.status in {400, 422}, answer
    assert message in (answer.body or {})["message"]


def test_a_batch_of_buckets_has_a_job_without_claims(space: Space) -> None:
    identity = {"aws": {"roleARN": "arn:aws:iam::123456789012:role/batches"}}
    places: dict[str, Any] = {
        "input": {"uri": "s3://sets/rows.npz", "credentials": {"secretName": "reader"}, "sizeLimit": "1Gi"},
        "output": {"uri": "s3://results/night", "credentials": {"identity": identity}, "region": "eu-1"},
    }
    space.apply(files(), deployment(), batch_inference(**places))
    job = until(lambda: space.get(kinds.JOB, JOB), bool, goal="the runner is made", limit_s=30) or {}
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes.keys() == {"tmp", "copy", "input-credentials", "output-identity"}
    assert (
        volumes["output-identity"]["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "sts.amazonaws.com"
    )

    space.delete(kinds.BATCH_INFERENCE, "night")
    until(lambda: space.get(kinds.JOB, JOB), lambda current: current is None, goal="the Job goes", limit_s=30)
    space.apply(batch_inference(**places, serviceAccountName="admin"))
    wait_reason(space, "Complete", "PolicyDenied")
    assert space.get(kinds.JOB, JOB) is None


@pytest.mark.parametrize("labels", [{"serving.halcyon.dev/batch-inference": "night"}, {}], ids=["labelled", "plain"])
def test_a_job_of_another_owner_is_left_alone(space: Space, labels: dict[str, str]) -> None:
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": JOB, "labels": labels},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    space.apply(foreign, files(), deployment(), batch_inference())
    wait_reason(space, "Complete", "NameConflict")
    assert space.must(kinds.JOB, JOB)["spec"]["template"]["spec"]["containers"][0]["image"] == "i"
