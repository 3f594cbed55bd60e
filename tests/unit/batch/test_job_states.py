"""What follows from the Job of a batch and its pod: an end that lasts, a failure that stays known, and a pause."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from halcyon.api.documents.batch_documents import BatchProgress
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.api.timestamps import rfc3339
from halcyon.batch.controller import BatchController
from halcyon.batch.job import LABEL, BatchSite
from halcyon.batch.runner_pod import POD_TIMEOUT_S
from halcyon.kube import kinds
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.kinds import Key, Kind
from tests.clocks import SplitClock
from tests.unit.batch.test_job import spec
from tests.unit.kube.memory_kube import MemoryKube

KEY, MODEL = Key("team", "night"), Key("team", "digits")
JOB = Key("team", "night-batch")
NOW = 1_764_000_000.0
SITE = BatchSite("i", policy=SitePolicy.model_validate({"pods": {"serviceAccounts": ["typo", "batches"]}}))
SERVED: Object = {"metadata": {"namespace": "team", "name": "digits", "uid": "m-1", "generation": 1}, "spec": {}}


class Applied(MemoryKube):
    """Objects with applies that replace the part that is sent."""

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        key = (kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        stored: Object = self.objects.get(key, {"metadata": {}})
        return self._put(key, {**stored, **obj, "metadata": {**stored["metadata"], **obj["metadata"]}})


class Night:
    """A BatchInference, the caches of its controller, and the cluster behind them."""

    def __init__(self, **others: Any) -> None:
        self.kube, self.model, self.now = Applied(), SERVED, NOW
        clock = SplitClock(lambda: self.now, lambda: self.now)
        self.controller = BatchController(self.kube, clock, SITE, lambda _: self.model)
        self.request(**others)

    def request(self, uid: str = "u-1", generation: int = 1, **others: Any) -> None:
        key = (kinds.BATCH_INFERENCE, *KEY)
        stored: Object = {"status": self.status} if key in self.kube.objects else {}
        meta = {"namespace": "team", "name": "night", "uid": uid, "generation": generation}
        self.kube.objects[key] = stored | {
            "metadata": meta | {"resourceVersion": f"{uid}{generation}"},
            "spec": spec(**others),
        }

    @property
    def status(self) -> Object:
        status: Object = self.kube.objects[kinds.BATCH_INFERENCE, *KEY].get("status") or {}
        return status

    @property
    def job(self) -> Object | None:
        return self.kube.objects.get((kinds.JOB, *JOB))

    def end_job(self, kind: str) -> None:
        assert self.job is not None
        self.job["status"] = {"conditions": [{"type": kind, "status": "True"}]}

    def reconcile(self) -> float | None:
        """Fill the caches from the cluster, reconcile, and return the seconds until the next reconcile."""
        for informer, key in (
            (self.controller.batches, KEY),
            (self.controller.jobs, JOB),
            (self.controller.pods, Key("team", "p")),
        ):
            informer._store(key, None)
            if (obj := self.kube.objects.get((informer.kind, *key))) is not None:
                informer._store(key, obj)
        return asyncio.run(self.controller._reconcile(KEY, None))  # type: ignore[arg-type]  # no pod with an address

    def runner(self, code: int, progress: BatchProgress, *more: Object, phase: str | None = None) -> None:
        """Create the runner's pod, in which the runner has ended."""
        ended = {
            "exitCode": code, "reason": "Error", "message": progress.to_json(), "finishedAt": rfc3339(self.now)
        }  # fmt: skip
        self.pod(
            phase or ("Failed" if code else "Succeeded"), *more, {"name": "runner", "state": {"terminated": ended}}
        )

    def pod(self, phase: str, *statuses: Object) -> None:
        assert self.job is not None
        labels = {LABEL: "night", "batch.kubernetes.io/controller-uid": self.job["metadata"]["uid"]}
        meta = {"namespace": "team", "name": "p", "uid": "p-1", "resourceVersion": "1", "labels": labels}
        times = {"creationTimestamp": rfc3339(NOW), "deletionTimestamp": None}
        status = {"phase": phase, "podIP": None, "containerStatuses": [*statuses]}
        self.kube.objects[kinds.POD, "team", "p"] = {"metadata": meta | times, "status": status}

    def delete(self, *removed_kinds: Kind) -> None:
        for kind in removed_kinds:
            self.kube.objects.pop((kind, *(JOB if kind is kinds.JOB else Key("team", "p"))), None)

    def condition(self, kind: str) -> tuple[str, str, str]:
        condition = next((entry for entry in self.status["conditions"] if entry["type"] == kind), None)
        return ("", "", "") if condition is None else (condition["status"], condition["reason"], condition["message"])


def done(failed: int = 5) -> BatchProgress:
    return BatchProgress(total=1000, done=1000 - failed, failed=failed, rows_per_request=8, is_complete=True)


def completed(failed: int = 5) -> Night:
    night = Night()
    night.reconcile()
    night.end_job("Complete")
    night.runner(0, done(failed))
    night.reconcile()
    assert night.condition("Complete")[:2] == ("True", "Completed")
    return night


@pytest.mark.parametrize("deleted", [(kinds.POD,), (kinds.JOB, kinds.POD)], ids=["pod", "job"])
def test_a_complete_batch_stays_complete_without_its_pod_or_job(deleted: tuple[Kind, ...]) -> None:
    night = completed()
    before = night.status
    assert "5 without a result" in night.condition("Complete")[2]
    night.delete(*deleted)
    night.now += 3600
    night.reconcile()
    assert night.status == before
    assert (night.job is None) == (kinds.JOB in deleted), "no runner starts again"


def test_a_complete_batch_whose_last_numbers_are_lost_claims_no_results() -> None:
    night = Night()
    night.reconcile()
    night.end_job("Complete")
    night.reconcile()
    assert night.condition("Complete") == (
        "True",
        "Completed",
        "all rows were processed; failures.jsonl lists the rows without a result",
    )
    assert completed(failed=0).condition("Complete")[2] == "all rows have a result"


def test_a_batch_is_paused_although_its_model_is_gone() -> None:
    night = Night()
    night.reconcile()
    night.model = None  # type: ignore[assignment]  # it was deleted
    night.request(generation=2, suspend=True)
    night.reconcile()
    assert night.job is not None
    assert night.job["spec"]["suspend"] is True
    assert night.condition("Suspended")[0] == "True"


def test_the_reason_of_a_failure_outlives_the_model() -> None:
    night = Night()
    night.reconcile()
    night.end_job("Failed")
    night.runner(2, BatchProgress(total=1000, done=300, failed=101, reason="TooManyFailures", message="101 rows"))
    night.model = None  # type: ignore[assignment]  # it was deleted
    night.reconcile()
    assert night.condition("Failed") == ("True", "TooManyFailures", "101 rows")


def test_a_sidecar_of_others_does_not_keep_a_batch_from_its_end() -> None:
    night = Night()
    night.reconcile()
    sidecar = {"name": "vault-agent", "state": {"running": {}}}
    night.runner(0, done(), sidecar, phase="Running")
    night.reconcile()
    assert night.condition("Complete")[:2] == ("True", "Completed")
    assert night.status["rows"] == {"total": 1000, "done": 995, "failed": 5}
    assert night.job is not None
    assert night.job["spec"]["suspend"] is True, "the pod with the sidecar holds its resources"


def test_a_runner_that_ends_early_beside_a_sidecar_is_replaced() -> None:
    """The pod's phase stays Running, so the Job doesn't count a failure and makes no other pod."""
    night = Night()
    night.reconcile()
    sidecar = {"name": "vault-agent", "state": {"running": {}}}
    night.runner(137, BatchProgress(total=1000, done=300), sidecar, phase="Running")
    night.reconcile()
    assert night.job is not None, "a native sidecar ends by itself, and the Job then makes another pod"
    assert night.condition("Complete")[1:] == ("Pending", "p has ended with Error, exit code 137")
    night.now += POD_TIMEOUT_S
    night.reconcile()
    assert night.job is None
    night.delete(kinds.POD)
    night.reconcile()
    assert night.job is not None
    assert night.status["rows"] == {"total": 1000, "done": 300, "failed": 0}


def test_a_final_failure_beside_a_sidecar_is_a_failed_batch() -> None:
    night = Night()
    night.reconcile()
    sidecar = {"name": "vault-agent", "state": {"running": {}}}
    night.runner(2, BatchProgress(total=9, reason="InputChanged", message="digests"), sidecar, phase="Running")
    night.now += 2 * POD_TIMEOUT_S
    night.reconcile()
    assert night.condition("Failed") == ("True", "InputChanged", "digests")
    assert night.job is not None
    night.request(generation=2, suspend=True)
    night.reconcile()
    assert night.job is None, "halcyon batch resume makes another runner"


def test_a_failed_batch_whose_model_is_gone_can_be_resumed() -> None:
    night = Night()
    night.reconcile()
    night.end_job("Failed")
    night.reconcile()
    night.model = None  # type: ignore[assignment]  # it was deleted
    night.reconcile()
    assert night.condition("Failed")[0] == "True"
    night.request(generation=2, suspend=True)
    night.reconcile()
    assert night.job is None
    night.reconcile()
    assert night.condition("Failed")[0] == ""
    assert night.condition("Complete")[:2] == ("False", "ModelNotFound")
    night.model = SERVED
    night.request(generation=3, suspend=False)
    night.reconcile()
    assert night.job is not None


def test_a_job_that_another_controller_suspends_is_not_resumed() -> None:
    """Kueue suspends a Job until its queue has room, and again at once if others resume it."""
    night = Night()
    night.reconcile()
    assert night.job is not None
    night.job["spec"]["suspend"] = True
    night.reconcile()
    assert night.job["spec"]["suspend"] is True
    assert night.condition("Complete")[1:] == (
        "Pending",
        "Job night-batch is suspended by another controller, for example Kueue, or by a user",
    )
    night.job["spec"]["suspend"] = False
    for generation, suspend in ((2, True), (3, False)):
        night.request(generation=generation, suspend=suspend)
        night.reconcile()
        assert night.job["spec"]["suspend"] is suspend, "Halcyon resumes what it has suspended"


@pytest.mark.parametrize("reason", ["ModelUnsuitable", "PolicyDenied"])
def test_a_runner_that_may_no_longer_run_is_suspended(reason: str) -> None:
    """Without balancers, its requests would compete with those of users; a denied Secret must not stay in use."""
    night = Night(serviceAccountName="batches")
    night.reconcile()
    if reason == "ModelUnsuitable":
        night.model = SERVED | {"spec": {"traffic": {"mode": "Direct"}}}
    else:
        night.controller.site = BatchSite("i")
    night.reconcile()
    assert night.condition("Complete")[1] == reason
    assert night.job is not None
    assert night.job["spec"]["suspend"] is True
    night.model, night.controller.site = SERVED, SITE
    night.reconcile()
    assert night.job["spec"]["suspend"] is False


def test_another_service_account_makes_another_runner() -> None:
    night = Night(serviceAccountName="typo")
    night.reconcile()
    night.request(generation=2, serviceAccountName="batches")
    night.reconcile()
    assert (kinds.JOB, *JOB) not in night.kube.objects, "a Job's pod can't be changed"
    night.reconcile()
    assert night.job is not None
    assert night.job["spec"]["template"]["spec"]["serviceAccountName"] == "batches"


def test_a_job_without_a_pod_is_named_with_where_its_reason_is() -> None:
    night = Night()
    assert night.reconcile() == POD_TIMEOUT_S
    assert night.job is not None
    night.job["status"] = {"startTime": rfc3339(NOW)}
    night.reconcile()
    assert night.condition("Complete")[2] == "the runner's pod is being created"
    night.now += POD_TIMEOUT_S
    night.reconcile()
    status, reason, message = night.condition("Complete")
    assert (status, reason) == ("False", "Pending")
    assert message.startswith(
        "Job night-batch, which started at 2025-11-24T16:00:00Z, has no pod. If this lasts, its Events"
    )
    assert message.endswith("kubectl describe job night-batch")


def test_a_new_batch_of_the_same_name_has_no_former_rows() -> None:
    night = Night()
    night.reconcile()
    night.controller._progress[KEY] = done()
    night.delete(kinds.JOB)
    before, night.kube.objects[kinds.BATCH_INFERENCE, *KEY] = night.kube.objects[kinds.BATCH_INFERENCE, *KEY], {}
    night.request(uid="u-2")
    night.controller._batch_changed(KEY, before, night.kube.objects[kinds.BATCH_INFERENCE, *KEY])
    assert night.controller.queue.take() == KEY, "although the generation is the same"
    night.kube.objects[kinds.BATCH_INFERENCE, *KEY].pop("status", None)
    night.reconcile()
    assert "rows" not in night.status


def test_a_changed_model_queues_a_batch_that_has_a_job() -> None:
    night = Night()
    night.reconcile()
    night.reconcile()  # the Job is in the cache
    queue = night.controller.queue
    while (key := queue.take()) is not None:
        queue.done(key)
    night.controller.model_changed(MODEL, SERVED, {**SERVED, "status": {"replicas": 1}})
    assert queue.take() is None
    night.controller.model_changed(MODEL, SERVED, {**SERVED, "metadata": {**SERVED["metadata"], "generation": 2}})
    assert queue.take() == KEY


def renamed(phase: str, name: str) -> Object:
    return SERVED | {"status": {"model": {"name": name}, "rollout": {"phase": phase}}}


@pytest.mark.parametrize("phase", ["Progressing", "Blocked", "RollingBack", "Failed"])
def test_a_name_that_changes_back_during_a_rollout_replaces_no_job(phase: str) -> None:
    """The first pod of a revision with another name may be ready for a moment, and then fail."""
    night = Night()
    night.model = renamed("Complete", "old")
    night.reconcile()
    job = night.job
    for model in (renamed(phase, "new"), renamed(phase, "old"), renamed("RolledBack", "old")):
        night.model = model
        night.reconcile()
        assert night.job == job
    night.model = renamed("Complete", "new")
    night.reconcile()
    assert night.job is None


def test_a_pod_of_a_deleted_job_does_not_end_a_new_batch() -> None:
    """The garbage collector deletes the pod a moment after its Job, and its label has the name of the batch."""
    night = Night()
    night.reconcile()
    night.runner(0, done(), {"name": "vault-agent", "state": {"running": {}}}, phase="Running")
    night.delete(kinds.JOB)
    night.kube.objects[kinds.BATCH_INFERENCE, *KEY].pop("status")
    night.request(uid="u-2")
    for _ in range(2):
        night.reconcile()
        assert night.condition("Complete")[0] == "False"
    assert night.job is not None
    assert not night.job["spec"]["suspend"]


@pytest.mark.parametrize("mode", ["Balancer", "Direct"])
def test_a_batch_whose_runner_waits_is_checked_again(mode: str) -> None:
    """No event says that the model's accepted spec has changed, with which the runner may start."""
    night = Night()
    night.reconcile()
    night.pod("Pending")
    night.model = SERVED | {"spec": {"traffic": {"mode": mode}}}
    night.now += 60
    night.reconcile()
    assert night.reconcile() == POD_TIMEOUT_S
