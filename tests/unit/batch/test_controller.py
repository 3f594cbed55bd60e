"""The controller beside objects of other owners, and beside models that the site policy has rejected."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from typing_extensions import override

from halcyon.api.documents.batch_documents import BatchProgress
from halcyon.api.policy.network import SiteNetwork
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.batch import runner_pod
from halcyon.batch.controller import BatchController
from halcyon.batch.job import LABEL, BatchSite
from halcyon.batch.runner_pod import POD_TIMEOUT_S
from halcyon.kube import errors, kinds
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.event_recorder import NewEvent
from halcyon.kube.kinds import Key, Kind
from tests.clocks import SplitClock
from tests.unit.kube.memory_kube import MemoryKube

KEY = Key("team", "night")
JOB = (kinds.JOB, "team", "night-batch")
POLICY = (kinds.NETWORK_POLICY, "team", "night-batch")
PEERS = SiteNetwork(operator=({"podSelector": {"matchLabels": {"app": "operator"}}},))
SPEC = {
    "modelDeployment": "digits",
    "input": {"persistentVolumeClaim": {"claimName": "sets", "path": "rows.npz"}},
    "output": {"persistentVolumeClaim": {"claimName": "results", "path": "night"}},
}


class ApiServer(MemoryKube):
    """API server with applies of whole objects, which is what the controller sends."""

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        key = (kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._check(key, obj["metadata"])
        stored: Object = self.objects.get(key, {"metadata": {}})
        return self._put(key, {**stored, **obj, "metadata": {**stored["metadata"], **obj["metadata"]}})

    @override
    async def list(
        self, kind: Kind, *, namespace: str = "", selector: str = "", metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        return [
            obj for (stored_kind, space, _), obj in self.objects.items() if (stored_kind, space) == (kind, namespace)
        ], "1"


class Batch:
    """One BatchInference of the model `digits`, whose controller reconciles it when the test says so."""

    def __init__(self, server: ApiServer, site: BatchSite, **traffic: Any) -> None:
        self.server = server
        self.model: Object = {"metadata": {"namespace": "team", "name": "digits"}, "spec": {"traffic": traffic}}
        clock = SplitClock(time.monotonic, time.time)
        self.controller = BatchController(server, clock, site, lambda _: self.model)
        meta = {"namespace": "team", "name": "night", "uid": "u-1", "generation": 1, "resourceVersion": "1"}
        stored = {"metadata": meta, "spec": SPEC}
        server.objects[kinds.BATCH_INFERENCE, "team", "night"] = stored
        self.controller.batches._store(KEY, stored)

    def reconcile(self) -> tuple[str, str, float | None]:
        """Return the reason and the message of the condition Complete, and the seconds until the next reconcile."""
        again_s = asyncio.run(self.controller._reconcile(KEY, None))  # type: ignore[arg-type]  # no pod to poll
        written = self.server.objects[kinds.BATCH_INFERENCE, "team", "night"]["status"]["conditions"]
        (complete,) = [condition for condition in written if condition["type"] == "Complete"]
        return complete["reason"], complete["message"], again_s


def foreign(kind: Kind, **others: Any) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "team", "name": "night-batch", "uid": "theirs", "resourceVersion": "7", **others},
        "spec": {"theirs": True},
    }


def test_a_network_policy_of_another_owner_is_left_alone() -> None:
    server = ApiServer()
    server.objects[POLICY] = foreign(kinds.NETWORK_POLICY)
    reason, message, again_s = Batch(server, BatchSite("i", network=PEERS)).reconcile()
    assert server.objects[POLICY] == foreign(kinds.NETWORK_POLICY)
    assert JOB not in server.objects, "a runner without its NetworkPolicy"
    assert reason == "NameConflict"
    assert message.startswith("NetworkPolicy night-batch does not belong to this BatchInference")
    assert again_s is not None, "nothing reports the end of the conflict, because NetworkPolicies aren't watched"


def test_an_own_network_policy_is_updated_before_a_runner_is_made_again() -> None:
    server = ApiServer()
    batch = Batch(server, BatchSite("i", network=PEERS))
    batch.reconcile()
    policy = server.objects[POLICY]
    del server.objects[JOB]
    server.objects[POLICY] = {**policy, "spec": {"theirs": True}}
    batch.reconcile()
    assert server.objects[POLICY]["spec"] == policy["spec"]
    assert server.objects[POLICY]["metadata"]["uid"] == policy["metadata"]["uid"]
    assert JOB in server.objects


def test_a_job_of_another_owner_without_a_label_is_a_conflict() -> None:
    server = ApiServer()
    server.objects[JOB] = foreign(kinds.JOB)
    reason, message, again_s = Batch(server, BatchSite("i")).reconcile()
    assert server.objects[JOB] == foreign(kinds.JOB)
    assert reason == "NameConflict"
    assert message.startswith("Job night-batch does not belong to this BatchInference")
    assert again_s is not None


def test_a_job_that_the_api_server_refuses_is_reported_with_its_reason() -> None:
    class FullQuota(ApiServer):
        @override
        async def apply(
            self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER
        ) -> Object:
            if kind is kinds.JOB:
                raise errors.Refused(403, "apply night-batch: exceeded quota: jobs, limited: count/jobs.batch=4")
            return await super().apply(kind, obj, subresource=subresource, manager=manager)

    reason, message, again_s = Batch(FullQuota(), BatchSite("i")).reconcile()
    assert reason == "Pending"
    assert message.startswith("the runner's Job can't be created: apply night-batch: exceeded quota: jobs")
    assert again_s == POD_TIMEOUT_S


def test_an_own_job_that_is_not_cached_yet_is_no_conflict() -> None:
    server = ApiServer()
    own = [{"kind": "BatchInference", "name": "night", "uid": "u-1"}]
    server.objects[JOB] = foreign(kinds.JOB, ownerReferences=own)
    reason, message, _ = Batch(server, BatchSite("i")).reconcile()
    assert (reason, message) == ("Pending", "the runner's pod is being created")


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        (
            BatchSite("i", policy=SitePolicy.model_validate({"models": {"secrets": ["models-*"]}})),
            "spec.traffic.apiKeys.secretName of digits is payroll, which this site does not allow (allowed: models-*)",
        ),
        (BatchSite("i", own_secret="team/payroll"), "the Secret with the operator's private key"),
    ],
    ids=["policy", "own secret"],
)
def test_a_runner_mounts_no_api_keys_that_its_model_may_not_name(site: BatchSite, expected: str) -> None:
    server = ApiServer()
    reason, message, _ = Batch(server, site, apiKeys={"secretName": "payroll"}).reconcile()
    assert JOB not in server.objects
    assert reason == "PolicyDenied"
    assert expected in message


def test_api_keys_that_the_site_policy_allows_are_mounted() -> None:
    server = ApiServer()
    allowed = BatchSite("i", policy=SitePolicy.model_validate({"models": {"secrets": ["pay*"]}}))
    Batch(server, allowed, apiKeys={"secretName": "payroll"}).reconcile()
    exempt = SitePolicy.model_validate({"models": {"secrets": []}, "exemptNamespaces": ["team"]})
    for api_server in (server, other := ApiServer()):
        if api_server is other:
            Batch(api_server, BatchSite("i", policy=exempt), apiKeys={"secretName": "payroll"}).reconcile()
        volumes = api_server.objects[JOB]["spec"]["template"]["spec"]["volumes"]
        assert {"name": "api-keys", "secret": {"secretName": "payroll"}} in volumes


def test_a_batch_of_another_releases_model_is_left_to_it() -> None:
    server = ApiServer()
    batch = Batch(server, BatchSite("i", release="halcyon-system/halcyon"))
    before, batch.model = batch.model, {**batch.model, "status": {"operator": "theirs/halcyon"}}
    stored = dict(server.objects)
    assert asyncio.run(batch.controller._reconcile(KEY, None)) is None  # type: ignore[arg-type]  # no pod to poll
    assert server.objects == stored

    # The other release was uninstalled, and this one has taken over the model, and so the Job that is there.
    batch.controller.jobs._store(Key("team", "night-batch"), foreign(kinds.JOB))
    after = {**before, "status": {"operator": "halcyon-system/halcyon"}}
    batch.controller.model_changed(Key("team", "digits"), batch.model, after)
    assert len(batch.controller.queue) == 1
    batch.model = after
    batch.controller.jobs._store(Key("team", "night-batch"), None)
    assert batch.reconcile()[0] == "Pending"
    assert JOB in server.objects


def runner(phase: str) -> Object:
    meta = {
        "namespace": "team",
        "name": "night-batch-1",
        "uid": "p",
        "resourceVersion": "1",
        "labels": {LABEL: "night"},
    }
    states = [{"name": "runner", "state": {"running": {}}}] if phase == "Running" else []
    status = {"phase": phase, "podIP": "10.0.0.9" if states else None, "containerStatuses": states}
    return {"metadata": meta | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status}


def test_a_rejected_status_of_a_batch_is_an_event() -> None:
    class Denying(ApiServer):
        @override
        async def apply(
            self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER
        ) -> Object:
            if subresource == "status":
                raise errors.Refused(422, "apply night: denied request: no")
            return await super().apply(kind, obj, subresource=subresource, manager=manager)

    batch, recorded = Batch(Denying(), BatchSite("i")), list[NewEvent]()
    batch.controller.record = lambda _, event: recorded.append(event)
    with pytest.raises(errors.Refused):
        batch.reconcile()
    assert [(event.type, event.reason) for event in recorded] == [("Warning", "StatusRejected")]


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_batch_wakes_its_model_only_once_its_pod_runs(phase: str) -> None:
    batch = Batch(ApiServer(), BatchSite("i"))
    newer = batch.server.objects[kinds.BATCH_INFERENCE, "team", "night"]["metadata"] | {"resourceVersion": "2"}
    batch.controller.batches._take({"metadata": newer, "spec": {**SPEC, "atZero": "Wake"}})
    batch.controller.pods._take(runner(phase))
    assert all(work.may_wake for work in batch.controller.running(Key("team", "digits"))), "pods aren't read yet"
    batch.controller.pods.synced.set()
    assert [work.may_wake for work in batch.controller.running(Key("team", "digits"))] == [phase == "Running"]


def test_a_runner_that_no_longer_responds_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, its node is lost. The last rate must not be shown until the pod is deleted, minutes later."""
    batch, now = Batch(ApiServer(), BatchSite("i")), 1000.0
    batch.controller.clock = SplitClock(lambda: now, lambda: 1e9 + now)
    batch.reconcile()
    job = batch.server.objects[JOB]
    batch.controller.jobs._take({**job, "metadata": {**job["metadata"], "resourceVersion": "1"}})
    batch.controller.pods._take(runner("Running"))
    answers: list[BatchProgress | None] = [BatchProgress(total=10, done=2, rows_per_s=5.0, left_s=2.0)]

    async def poll(_session: object, _host: str) -> BatchProgress | None:
        return answers.pop() if answers else None

    monkeypatch.setattr(runner_pod, "poll", poll)
    shown = []
    for _ in range(4):
        shown.append(batch.reconcile()[0])
        now += 25
    assert shown == ["Running", "Running", "Running", "Pending"]
    assert batch.reconcile()[1] == "the runner has not responded for more than 60 s, at port 8080 of its pod"


def test_a_runner_isnt_silent_while_its_model_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile it isn't polled, so the first poll that fails is no minute of silence."""
    batch, now = Batch(ApiServer(), BatchSite("i")), 1000.0
    batch.controller.clock = SplitClock(lambda: now, lambda: 1e9 + now)
    batch.reconcile()
    job = batch.server.objects[JOB]
    batch.controller.jobs._take({**job, "metadata": {**job["metadata"], "resourceVersion": "1"}})
    batch.controller.pods._take(runner("Running"))
    answers: list[BatchProgress | None] = [BatchProgress(total=10, done=2, rows_per_s=5.0, left_s=2.0)]

    async def poll(_session: object, _host: str) -> BatchProgress | None:
        return answers.pop() if answers else None

    monkeypatch.setattr(runner_pod, "poll", poll)
    assert batch.reconcile()[0] == "Running"
    model, batch.controller.model = batch.controller.model, lambda _: None
    now += 100
    assert batch.reconcile()[0] == "ModelNotFound"
    batch.controller.model = model
    assert batch.reconcile()[0] == "Running"
