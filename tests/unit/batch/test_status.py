"""The status of a BatchInference: its conditions, its figures, and writes only for changes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import halcyon_batch
from halcyon.api.batch_inference import BatchInferenceStatus, BatchReason
from halcyon.api.documents.batch_documents import BatchProgress
from halcyon.api.spec.parse import parse_batch as parse
from halcyon.batch import status
from halcyon.batch.job import ServedModel
from halcyon.batch.runner_pod import current, last_progress, pending
from halcyon.batch.running_batch import RunningBatch, remaining
from halcyon.batch.status import Observed, Obstacle, events, served_model
from halcyon.kube.event_recorder import NewEvent
from tests.unit.batch.test_job import spec

NOW = 1_764_000_000.0
AT_NOW = "2025-11-24T16:00:00Z"


def batch_status(
    seen: Observed, before: dict[str, Any] | None = None, now: float = NOW, **others: Any
) -> dict[str, Any]:
    document = status.make(before or {}, parse(spec(**others)), seen, generation=3, now=now)
    BatchInferenceStatus.model_validate(document)
    return document


def conditions(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(condition["type"], condition["status"], condition["reason"]) for condition in document["conditions"]]


def progress(**others: Any) -> BatchProgress:
    return BatchProgress(**{"total": 1000, "done": 400, "failed": 5, "rows_per_s": 50.0, "left_s": 600.0, **others})


@pytest.mark.parametrize(
    ("seen", "others", "expected"),
    [
        (Observed(progress=progress()), {}, [("Complete", "False", "Running")]),
        (Observed(pending="no node"), {}, [("Complete", "False", "Pending")]),
        (Observed(progress=progress(waiting="503: full")), {}, [("Complete", "False", "Waiting")]),
        (Observed(progress=progress()), {"suspend": True}, [("Complete", "False", "Suspended"), ("Suspended", "True", "Suspended")]),
        (Observed(Obstacle("ModelNotFound", "no")), {}, [("Complete", "False", "ModelNotFound")]),
        (Observed(Obstacle("Invalid", "no", is_final=True)), {}, [("Failed", "True", "Invalid"), ("Complete", "False", "Invalid")]),
        (Observed(is_failed=True, progress=progress(reason="InputChanged", message="m")), {}, [("Failed", "True", "InputChanged"), ("Complete", "False", "Failed")]),
        (Observed(is_failed=True, pending="p has ended with OOMKilled"), {}, [("Failed", "True", "RunnerFailed"), ("Complete", "False", "Failed")]),
        (Observed(is_done=True, progress=progress()), {"suspend": True}, [("Complete", "True", "Completed")]),
    ],
)  # fmt: skip
def test_conditions_follow_the_truth_table(seen: Observed, others: dict[str, Any], expected: list[Any]) -> None:
    assert conditions(batch_status(seen, **others)) == expected


def test_figures_of_a_running_batch_are_in_the_status() -> None:
    document = batch_status(Observed(progress=progress(rows_per_request=8)))
    assert document["rows"] == {"total": 1000, "done": 400, "failed": 5}
    assert (document["progress"], document["rate"], document["rowsPerRequest"]) == ("405/1000", "50", 8)
    assert document["eta"] == "2025-11-24T16:10:00Z"
    # The runner of an earlier release chose up to a quarter of maxBatchSize.
    assert batch_status(Observed(progress=progress(rows_per_request=16384)))["rowsPerRequest"] == 16384


@pytest.mark.parametrize(
    ("others", "remedy"),
    [
        ({}, "Raise spec.scaling.maxReplicas of ModelDeployment digits, or set a later deadline"),
        ({"maxReplicas": 2}, "Raise spec.maxReplicas, which is 2, or set a later deadline"),
    ],
)
def test_a_late_batch_names_the_limit_that_holds_it_back(others: dict[str, Any], remedy: str) -> None:
    document = batch_status(Observed(progress=progress()), deadline="2025-11-24T16:05:00Z", **others)
    (late,) = [condition for condition in document["conditions"] if condition["type"] == "OnTime"]
    assert (late["reason"], late["message"].endswith(remedy)) == ("DeadlineTooClose", True), late["message"]


def test_an_end_after_the_year_9999_is_unknown() -> None:
    document = batch_status(Observed(progress=progress(rows_per_s=1e-9, left_s=5e14)))
    assert ("eta" in document, document["rate"]) == (False, "0.000000001")


def test_a_runner_that_has_not_answered_is_pending() -> None:
    """It is starting, or a NetworkPolicy of the site denies the operator's requests as long as it runs."""
    (complete,) = batch_status(Observed())["conditions"]
    assert complete["reason"] == "Pending"
    assert complete["message"] == "the runner has not responded yet, at port 8080 of its pod"


def test_rows_stay_known_while_a_new_runner_starts() -> None:
    before = batch_status(Observed(progress=progress()))
    after = batch_status(Observed(progress=BatchProgress(waiting="the input is being read")), before)
    assert after["rows"] == before["rows"]
    assert "rate" not in after
    assert batch_status(Observed(pending="no node"), before)["rows"] == before["rows"]


def test_rows_are_known_while_the_first_request_waits() -> None:
    """The autoscaler adds replicas for a deadline only if the number of rows is known."""
    document = batch_status(Observed(progress=BatchProgress(total=1000, waiting="503: no server")))
    assert document["rows"] == {"total": 1000, "done": 0, "failed": 0}
    batch = {"metadata": {"name": "night"}, "spec": spec(deadline=AT_NOW), "status": document}
    assert remaining(batch) == RunningBatch("night", 1000, NOW, None, may_wake=False, gentle=False)


@pytest.mark.parametrize(
    ("reason", "may_wake"), [("Running", True), ("Pending", True), ("PolicyDenied", False), ("NameConflict", False)]
)
def test_a_batch_without_a_runner_wakes_no_model(reason: str, may_wake: bool) -> None:
    document = batch_status(Observed(Obstacle(reason, "m")), atZero="Wake")
    batch = {"metadata": {"name": "night"}, "spec": spec(atZero="Wake"), "status": document}
    running = remaining(batch)
    assert running is not None
    assert running.may_wake is may_wake
    assert remaining({**batch, "status": {}}) == RunningBatch("night", None, None, None, may_wake=True, gentle=False)


@pytest.mark.parametrize(("has_run", "rows", "may_wake"), [(False, None, False), (True, None, True), (False, 9, True)])
def test_a_batch_whose_runner_never_ran_wakes_no_model(has_run: bool, rows: int | None, may_wake: bool) -> None:
    """For example, the PersistentVolumeClaim of its input doesn't exist."""
    known = {} if rows is None else {"rows": {"total": rows, "done": 0, "failed": 0}}
    batch = {"metadata": {"name": "night"}, "spec": spec(atZero="Wake"), "status": known}
    running = remaining(batch, has_runner=has_run)
    assert running is not None
    assert running.may_wake is may_wake


@pytest.mark.parametrize(
    ("rows_per_s", "shown"),
    [(0.00005, "0.00005"), (0.0123, "0.0123"), (99.96, "100"), (999.7, "1000"), (2512.4, "2512")],
)
def test_a_rate_has_no_exponent(rows_per_s: float, shown: str) -> None:
    document = batch_status(Observed(progress=progress(rows_per_s=rows_per_s)), deadline="2025-11-24T16:05:00Z")
    assert document["rate"] == shown
    message = document["conditions"][-1]["message"]
    assert message.startswith(f"at {shown} rows/s, the batch ends at")
    assert "e+" not in message


def test_an_end_that_hardly_moves_leaves_the_status_as_it_is() -> None:
    before = batch_status(Observed(progress=progress()))
    assert batch_status(Observed(progress=progress(left_s=595.0)), before, now=NOW + 10) == before
    assert batch_status(Observed(progress=progress(left_s=400.0)), before, now=NOW + 10)["eta"] != before["eta"]


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = batch_status(Observed(progress=progress()))
    after = batch_status(Observed(progress=progress(waiting="503")), before, now=NOW + 100)
    assert after["conditions"][0]["lastTransitionTime"] == AT_NOW
    done = batch_status(Observed(is_done=True), before, now=NOW + 200)
    assert (done["completionTime"], done["conditions"][0]["lastTransitionTime"]) == ("2025-11-24T16:03:20Z",) * 2
    assert batch_status(Observed(is_done=True), done, now=NOW + 900)["completionTime"] == done["completionTime"]


def test_a_failure_stays_known_after_its_pod_is_gone() -> None:
    before = batch_status(Observed(is_failed=True, progress=progress(reason="InputChanged", message="both digests")))
    after = batch_status(Observed(is_failed=True), before)
    assert (after["conditions"][0]["reason"], after["conditions"][0]["message"]) == ("InputChanged", "both digests")


@pytest.mark.parametrize(
    ("deadline", "reason", "message"),
    [
        ("2025-11-24T16:20:00Z", "InTime", "at this rate, the batch ends before 2025-11-24T16:20:00Z"),
        (
            "2025-11-24T16:05:00Z",
            "DeadlineTooClose",
            "The remaining 595 rows need 100 rows/s. Raise spec.scaling.maxReplicas",
        ),
        ("2025-11-24T15:00:00Z", "DeadlineMissed", "which has passed"),
    ],
)
def test_a_deadline_that_is_not_reached_shows_the_rate_that_is_needed(deadline: str, reason: str, message: str) -> None:
    on_time = batch_status(Observed(progress=progress()), deadline=deadline)["conditions"][-1]
    assert (on_time["type"], on_time["reason"], message in on_time["message"]) == ("OnTime", reason, True), on_time


def test_a_gentle_batch_that_is_too_slow_names_its_own_limit() -> None:
    """More replicas may not help, because balancers limit its rows in each of them."""
    document = batch_status(Observed(progress=progress()), deadline="2025-11-24T16:05:00Z", gentle=True)
    assert "Set spec.gentle to false, raise spec.scaling.maxReplicas" in document["conditions"][-1]["message"]


def test_a_deadline_that_has_passed_is_shown_before_a_rate_is_known() -> None:
    passed = batch_status(Observed(pending="no node"), deadline="2025-11-24T15:00:00Z")
    assert conditions(passed)[-1] == ("OnTime", "False", "DeadlineMissed")
    assert len(conditions(batch_status(Observed(pending="no node"), deadline="2025-11-24T17:00:00Z"))) == 1


@pytest.mark.parametrize(
    ("model", "reason", "message"),
    [
        (
            None,
            "ModelNotFound",
            "there is no ModelDeployment digits in namespace team; a batch needs one in its own namespace",
        ),
        ({"traffic": {"mode": "Direct"}}, "ModelUnsuitable", "spec.traffic.mode of ModelDeployment digits is Direct"),
        ({"traffic": {"tls": {"secretName": "t"}}}, "ModelUnsuitable", "ModelDeployment digits sets spec.traffic.tls"),
        ({"replicas": 0}, "ModelStopped", "run kubectl scale mdep digits --replicas=1"),
        ({"replicas": 0, "scaling": {"mode": "Paused", "minReplicas": 0}}, "ModelStopped", "spec.scaling.mode Paused"),
    ],
)
def test_a_model_that_can_not_be_used_is_named_with_the_reason(model: Any, reason: str, message: str) -> None:
    obstacle = served_model(None if model is None else {"spec": model}, "digits", "team")
    assert isinstance(obstacle, Obstacle)
    assert (obstacle.reason, message in obstacle.message) == (reason, True), obstacle.message


def test_a_model_at_zero_with_scaling_can_be_used() -> None:
    served = served_model({"spec": {"replicas": 0, "scaling": {"minReplicas": 0}, "model": {"name": "D"}, "batching": {"maxBatchSize": 8}}}, "digits", "team")  # fmt: skip
    assert served == ServedModel(name="digits", model="D", max_rows=8)


def test_a_paused_model_keeps_its_minimum_for_a_batch() -> None:
    served = served_model(
        {"spec": {"replicas": 0, "scaling": {"mode": "Paused", "minReplicas": 2, "maxReplicas": 4}}}, "digits", "team"
    )
    assert isinstance(served, ServedModel), served


def test_a_batch_sends_the_name_that_balancers_route() -> None:
    model = {"spec": {"model": {"name": "new"}}, "status": {"model": {"name": "old"}}}
    served = served_model(model, "digits", "team")
    assert isinstance(served, ServedModel)
    assert served.model == "old"


def pod(name: str, state: dict[str, Any], phase: str = "Pending", **others: Any) -> dict[str, Any]:
    meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z", "deletionTimestamp": None, **others}
    return {
        "metadata": meta,
        "status": {"phase": phase, "podIP": None, "conditions": None, "containerStatuses": [{"state": state}]},
    }


def test_the_newest_pod_that_stays_is_the_runner() -> None:
    pods = [pod("p-2", {}), pod("p-1", {}), pod("p-3", {}, deletionTimestamp="now")]
    assert (current(pods) or {})["metadata"]["name"] == "p-2"
    assert current([]) is None


def test_a_pod_that_does_not_run_has_a_reason() -> None:
    assert (
        pending(pod("p-1", {"waiting": {"reason": "ErrImagePull", "message": "no image"}}))
        == "p-1: ErrImagePull: no image"
    )
    assert (
        pending(pod("p-1", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "Failed"))
        == "p-1 has ended with OOMKilled, exit code 137"
    )
    unplaced = pod("p-1", {})
    unplaced["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    ]
    assert pending(unplaced) == "p-1: Unschedulable: no node"
    assert pending(pod("p-1", {"running": {}}, "Running")) == ""
    # The kubelet waits without end for a missing Secret, and reports it only in Events.
    creating = pending(pod("p-1", {"waiting": {"reason": "ContainerCreating"}}))
    assert creating.endswith("if this lasts, a Secret or ConfigMap may be missing; kubectl describe pod p-1")


def test_an_ended_sidecar_of_others_does_not_end_the_runner() -> None:
    running = pod("p-1", {"running": {}}, "Running")
    sidecar = {"name": "logs", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    running["status"]["containerStatuses"].append(sidecar)
    assert pending(running) == ""
    running["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CreateContainerError"}}
    assert pending(running) == "p-1: CreateContainerError: no message"


def test_a_pod_that_has_ended_shows_the_cause_that_is_known() -> None:
    evicted = pod("p-1", {"terminated": {"exitCode": 137, "reason": "Error"}}, "Failed")
    evicted["status"]["message"] = 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". '
    assert pending(evicted) == 'p-1 has ended: Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'
    left = progress(message="OSError: [Errno 5] Input/output error").to_json()
    broken = pod("p-1", {"terminated": {"exitCode": 1, "reason": "Error", "message": left}}, "Failed")
    assert pending(broken) == "p-1 has ended with Error, exit code 1: OSError: [Errno 5] Input/output error"


def test_the_last_progress_is_in_the_termination_message() -> None:
    left = progress(reason="OutputFull", message="m").to_json()
    last = last_progress(pod("p-1", {"terminated": {"exitCode": 2, "message": left}}, "Failed"))
    assert (last or progress()).reason == "OutputFull"
    assert last_progress(pod("p-1", {"terminated": {"exitCode": 137, "message": "Killed"}}, "Failed")) is None


def test_an_event_shows_each_end_of_a_batch_once() -> None:
    running = batch_status(Observed(progress=progress()))
    full = batch_status(Observed(is_failed=True, progress=progress(reason="OutputFull", message="no space is left")))
    changed = batch_status(Observed(is_failed=True, progress=progress(reason="InputChanged", message="both digests")))
    complete = batch_status(Observed(is_done=True, progress=progress()))
    assert events({}, running) == events(full, full) == events(full, running) == events(complete, complete) == []
    assert events(running, full) == [NewEvent("Warning", "OutputFull", "no space is left")]
    assert events(full, changed) == [NewEvent("Warning", "InputChanged", "both digests")]
    assert [(event.type, event.reason) for event in events(running, complete)] == [("Normal", "Completed")]


def test_each_reason_of_a_runner_is_documented() -> None:
    used: set[str] = set()
    for path in Path(halcyon_batch.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "BatchError":
                used |= {constant.value for constant in ast.walk(node.args[0]) if isinstance(constant, ast.Constant)}
    assert {"InputChanged", "OutputFull", "TooManyFailures"} < used
    assert used <= {reason.value for reason in BatchReason}
