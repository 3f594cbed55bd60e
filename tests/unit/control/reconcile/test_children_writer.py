"""What appears, or changes, between the look at a child and the write of it is left as it is."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from typing_extensions import override

from halcyon.control.acceptance.accepted_specs import AcceptedSpecs
from halcyon.control.reconcile import children_writer
from halcyon.control.reconcile.reconciler import CONFLICT_REQUEUE_S, REJECTED_WRITE_REQUEUE_S
from halcyon.kube import errors, kinds
from halcyon.kube.apply_diff import holds
from halcyon.kube.client import FIELD_MANAGER, Object
from halcyon.kube.kinds import CHILDREN, Key, Kind
from halcyon.render import names
from halcyon.render.revision import HISTORY_LIMIT
from tests.unit.control.reconcile.reconciled_namespace import Api, Team

KEY = Key("team", "one")
THEIRS: Object = {"theirs": True, "replicas": 0, "template": {}}
CREATED_KINDS = sorted({kind.kind for kind in CHILDREN} - {"HorizontalPodAutoscaler"})


def foreign(kind: Kind, name: str) -> Object:
    """An object of somebody else."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "team", "name": name, "uid": "theirs"},
        "spec": THEIRS,
    }


class Racing(Api):
    """An API server in which an object appears as soon as it was looked for in vain."""

    appears: str = ""
    """Kind of the object that appears."""
    appeared: tuple[Kind, str, str] | None = None

    @override
    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        child = await super().get(kind, namespace, name)
        if child is None and kind.kind == self.appears and self.appeared is None:
            self.appeared = (kind, namespace, name)
            self._put(self.appeared, foreign(kind, name))
        return child


def settled() -> Team:
    team = Team()
    team.ask("one")
    return team


@pytest.mark.parametrize("word", CREATED_KINDS)
async def test_an_object_that_appears_after_the_look_is_not_taken_over(word: str) -> None:
    api = Racing()
    api.appears = word
    team = Team(api=api)
    team.ask("one")
    with pytest.raises(errors.Conflicted):
        await team.reconciler.reconcile(KEY)

    assert api.appeared is not None
    child = api.objects[api.appeared]
    assert child["spec"] == THEIRS
    assert "ownerReferences" not in child["metadata"]
    # The next look finds it.
    await team.reconciler.reconcile(KEY)
    assert api.accepted["one"] == "Conflict"


async def test_objects_of_an_earlier_spec_are_not_written_again() -> None:
    team = settled()
    await team.reconciler.reconcile(KEY)
    earlier = team.caches.resources.get(KEY)
    team.ask("one", batching={"maxBatchSize": 4}, rollout={"strategy": "Replace"})
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    present, written = team.caches.resources.get(KEY), copy.deepcopy(team.api.objects)

    # As in an operator that has just become the leader, and whose watches have stood still.
    team.caches.resources._store(KEY, earlier)
    with pytest.raises(children_writer.StaleModel, match="ModelDeployment team/one has changed"):
        await team.reconciler.reconcile(KEY)
    assert team.api.objects == written

    team.caches.resources._store(KEY, present)
    team.api.models_read.clear()
    await team.reconciler.reconcile(KEY)
    assert team.api.objects == written
    assert not team.api.models_read, "at rest, the model isn't read"


async def test_objects_beside_deleted_servers_are_not_created() -> None:
    team = settled()
    await team.reconciler.reconcile(KEY)
    servers, service = (
        names.server("one", "a"),
        next(name for kind, _, name in team.api.objects if kind.kind == "Service"),
    )
    # The end of the servers isn't cached yet, that of a Service is.
    del team.api.objects[kinds.DEPLOYMENT, "team", servers]
    team.seen(kinds.SERVICE, service, None)

    with pytest.raises(children_writer.StaleModel, match=f"Deployment team/{servers} was deleted"):
        await team.reconciler.reconcile(KEY)
    assert (kinds.SERVICE, "team", service) not in team.api.objects

    team.seen(kinds.DEPLOYMENT, servers, None)
    await team.reconciler.reconcile(KEY)
    assert {(kinds.SERVICE, "team", service), (kinds.DEPLOYMENT, "team", servers)} <= team.api.objects.keys()


class Recording(Api):
    """An API server that keeps the last write of a Deployment."""

    last: Object | None = None

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        if kind is kinds.DEPLOYMENT:
            self.last = copy.deepcopy(obj)
        return await super().apply(kind, obj, subresource=subresource, manager=manager)


async def test_a_deployment_s_late_write_undoes_no_newer_one() -> None:
    api, servers = Recording(), names.server("one", names.SLOT_A)
    team = Team(api=api)
    team.ask("one")
    await team.reconciler.reconcile(KEY)
    team.ask("one", replicas=2)
    await team.reconciler.reconcile(KEY)
    late = api.last
    assert late is not None
    # The next leader has written before this write arrives.
    team.ask("one", replicas=3)
    await team.reconciler.reconcile(KEY)
    with pytest.raises(errors.Conflicted):
        await api.apply(kinds.DEPLOYMENT, late)
    assert api.objects[kinds.DEPLOYMENT, "team", servers]["spec"]["replicas"] == 3


async def test_a_deployment_is_written_although_its_status_has_changed() -> None:
    team = settled()
    await team.reconciler.reconcile(KEY)
    servers = names.server("one", names.SLOT_A)
    # The status isn't cached yet.
    deployment = team.api.objects[kinds.DEPLOYMENT, "team", servers]
    team.api._put((kinds.DEPLOYMENT, "team", servers), deployment | {"status": {"readyReplicas": 1}})
    team.ask("one", replicas=2)
    await team.reconciler.reconcile(KEY)
    assert team.api.objects[kinds.DEPLOYMENT, "team", servers]["spec"]["replicas"] == 2


async def test_a_deployment_that_another_writer_has_changed_is_not_overwritten() -> None:
    team = settled()
    await team.reconciler.reconcile(KEY)
    servers = names.server("one", names.SLOT_A)
    deployment = copy.deepcopy(team.api.objects[kinds.DEPLOYMENT, "team", servers])
    deployment["metadata"]["generation"] = 7
    changed = team.api._put((kinds.DEPLOYMENT, "team", servers), deployment)
    team.ask("one", replicas=2)
    with pytest.raises(children_writer.StaleModel, match=f"Deployment team/{servers} has changed"):
        await team.reconciler.reconcile(KEY)
    assert team.api.objects[kinds.DEPLOYMENT, "team", servers]["spec"]["replicas"] == 1
    team.caches.children[kinds.DEPLOYMENT]._store(Key("team", servers), changed)
    await team.reconciler.reconcile(KEY)
    assert team.api.objects[kinds.DEPLOYMENT, "team", servers]["spec"]["replicas"] == 2


@pytest.mark.parametrize("word", CREATED_KINDS)
async def test_an_object_in_the_place_of_a_child_is_not_taken_over(word: str) -> None:
    team = settled()
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    kind, _, name = address = next(key for key in team.api.objects if key[0].kind == word)
    # The cache has the child as somebody edited it; in the cluster another object has its name.
    edited = dict(team.api.objects[address])
    edited["metadata"] = {**edited["metadata"], "annotations": {}, "resourceVersion": "500"}
    team.caches.children[kind]._store(Key("team", name), edited)
    team.api.objects.pop(address)
    team.api._put(address, foreign(kind, name))
    with pytest.raises(errors.Conflicted):
        await team.reconciler.reconcile(KEY)

    assert team.api.objects[address]["spec"] == THEIRS


@pytest.mark.parametrize(("word", "versioned"), [("ConfigMap", True), ("Role", True), ("Deployment", False)])
async def test_a_version_is_a_condition_only_for_kinds_without_a_status(word: str, versioned: bool) -> None:
    team = settled()
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    kind, _, name = address = next(key for key in team.api.objects if key[0].kind == word)
    edited = dict(team.api.objects[address])
    edited["metadata"] = {**edited["metadata"], "annotations": {}}
    team.caches.children[kind]._store(
        Key("team", name), edited | {"metadata": edited["metadata"] | {"resourceVersion": "0"}}
    )
    if versioned:
        with pytest.raises(errors.Conflicted):
            await team.reconciler.reconcile(KEY)
    else:
        await team.reconciler.reconcile(KEY)
        assert "annotations" in team.api.objects[address]["metadata"]


async def test_an_unchanged_object_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    team = settled()
    for _ in range(4):
        await team.reconciler.reconcile(KEY)
    compared: list[str] = []

    def spied(live: Any, desired: Any) -> bool:
        compared.append(desired["kind"])
        return holds(live, desired)

    monkeypatch.setattr(children_writer, "holds", spied)
    await team.reconciler.reconcile(KEY)
    assert compared == []
    address = next(key for key in team.api.objects if key[0] is kinds.PDB)
    edited = team.api.objects[address] | {"spec": {"minAvailable": 7}}
    team.seen(kinds.PDB, address[2], edited)
    await team.reconciler.reconcile(KEY)
    assert compared == ["PodDisruptionBudget"]
    assert team.api.objects[address]["spec"] != edited["spec"]


class Mirrored(Api):
    """An API server with a policy that replaces the registry of each Deployment's images."""

    writes: int = 0

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        if kind is not kinds.DEPLOYMENT:
            return await super().apply(kind, obj, subresource=subresource, manager=manager)
        self.writes += 1
        mirrored = copy.deepcopy(obj)
        mirrored["metadata"]["generation"] = 1
        for container in mirrored["spec"]["template"]["spec"]["containers"]:
            container["image"] = f"mirror.example.com/{container['image']}"
        return await super().apply(kind, mirrored)


async def test_a_policy_that_replaces_images_causes_one_write_for_each_plan() -> None:
    api = Mirrored()
    team = Team(api=api)
    team.ask("one")
    for _ in range(4):
        await team.reconciler.reconcile(KEY)
    before = api.writes
    deployments = [(key, obj) for key, obj in api.objects.items() if key[0] is kinds.DEPLOYMENT]
    assert before == len(deployments) > 0
    for ready in range(3):
        for address, obj in deployments:
            team.seen(kinds.DEPLOYMENT, address[2], obj | {"status": {"readyReplicas": ready}})
        await team.reconciler.reconcile(KEY)
    assert api.writes == before
    # An edit of the metadata is still noticed, although it has no generation of its own.
    (_, _, name), first = deployments[0]
    team.seen(kinds.DEPLOYMENT, name, first | {"metadata": {**first["metadata"], "annotations": {}}})
    await team.reconciler.reconcile(KEY)
    assert api.writes == before + 1


async def test_objects_that_are_no_longer_planned_leave_no_state() -> None:
    team = settled()
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    writer = team.reconciler.children
    assert (kinds.PDB, "one-balancer") in writer._current[KEY]
    team.ask("one", traffic={"mode": "Direct"})
    for _ in range(6):
        await team.reconciler.reconcile(KEY)
    assert (kinds.PDB, "one-balancer") not in writer._current[KEY]
    writer.forget(KEY)
    assert writer._current == {}


async def test_a_surplus_object_is_deleted_only_as_it_was_seen() -> None:
    team = settled()
    deleted: list[Any] = []
    original = team.api.delete

    async def delete(kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        deleted.append((name, seen and seen["metadata"]["uid"], seen and seen["metadata"]["resourceVersion"]))
        await original(kind, namespace, name, seen=seen)

    team.api.delete = delete  # type: ignore[method-assign]
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    budget = (kinds.PDB, "team", "one-balancer")
    metadata = team.api.objects[budget]["metadata"]
    team.ask("one", traffic={"mode": "Direct"})
    for _ in range(6):
        await team.reconciler.reconcile(KEY)

    assert ("one-balancer", metadata["uid"], metadata["resourceVersion"]) in deleted


async def test_a_replaced_template_is_taken_over_before_it_is_put_back() -> None:
    team = settled()
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    deployment = team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]
    template = deployment["spec"]["template"]
    labels = {**template["metadata"]["labels"], names.REVISION_LABEL: "earlier"}
    ours = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": {"f:a": {}}}}}
    theirs = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:template": {"f:b": {}}}}}
    replaced = {**template, "metadata": {**template["metadata"], "labels": labels}}
    meta = {**deployment["metadata"], "managedFields": [ours, theirs]}
    team.seen(
        kinds.DEPLOYMENT,
        "one-a",
        {**deployment, "metadata": meta, "spec": {**deployment["spec"], "template": replaced}},
    )
    handed: list[Any] = []
    patch = team.api.patch

    async def noted(kind: Kind, namespace: str, name: str, body: Any, **more: Any) -> Object:
        handed.append(body["metadata"])
        assert team.api.objects[kind, namespace, name]["spec"]["template"] == replaced
        return await patch(kind, namespace, name, body, **more)

    team.api.patch = noted  # type: ignore[method-assign]  # watched
    await team.reconciler.reconcile(KEY)
    ((owned,),) = [metadata["managedFields"] for metadata in handed]
    assert owned["fieldsV1"] == {"f:spec": {"f:template": {"f:a": {}, "f:b": {}}}}
    assert handed[0].keys() == {"uid", "resourceVersion", "managedFields"}
    assert team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"]["template"] == template
    assert team.event_reasons().count("TemplateReplaced") == 1
    await team.reconciler.reconcile(KEY)
    assert len(handed) == 1


class Denying(Api):
    """An API server with a policy that rejects one kind of write."""

    denied: str = ""
    """The write to reject: a new ConfigMap, as by a quota, or a pod template with another image, as by a policy."""

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        is_new = (kind, "team", obj["metadata"]["name"]) not in self.objects
        if self.denied == "ConfigMap" and kind is kinds.CONFIG_MAP and is_new:
            raise errors.Refused(403, "exceeded quota: team, requested: count/configmaps=1")
        if self.denied == "template" and kind is kinds.DEPLOYMENT and "other" in image(obj):
            raise errors.Refused(403, "the registry is not allowed")
        return await super().apply(kind, obj, subresource=subresource, manager=manager)


def image(deployment: Object) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.parametrize(
    ("denied", "change"),
    [("ConfigMap", {"batching": {"maxBatchSize": 4}}), ("template", {"runtime": {"image": "other/triton:1"}})],
)
async def test_servers_are_scaled_while_writes_of_a_new_revision_are_rejected(
    denied: str, change: dict[str, Any]
) -> None:
    api = Denying()
    team, scaling = Team(api=api), {"maxReplicas": 4}
    team.ask("one", scaling=scaling)
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    before = api.objects[kinds.DEPLOYMENT, "team", "one-a"]
    api.denied = denied
    team.ask("one", scaling=scaling, **change)
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    team.ask("one", scaling=scaling, replicas=3, **change)
    await team.reconciler.reconcile(KEY)
    after = api.objects[kinds.DEPLOYMENT, "team", "one-a"]

    assert api.accepted["one"] == "Forbidden"
    assert after["spec"] == {**before["spec"], "replicas": 3}
    assert AcceptedSpecs(team.caches).get(KEY) is not None
    assert (kinds.DEPLOYMENT, "team", "one-balancer") in api.objects
    assert "AcceptedSpecEdited" not in team.event_reasons()

    written = team.reconciler.children.counts.written
    await team.reconciler.reconcile(KEY)
    assert team.reconciler.children.counts.written == written

    api.denied = ""
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    assert api.accepted["one"] == "Accepted"
    assert api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"]["template"] != before["spec"]["template"]


async def test_a_model_whose_first_write_is_rejected_gets_no_servers() -> None:
    api = Denying()
    api.denied = "ConfigMap"
    team = Team(api=api)
    team.ask("one")
    for _ in range(3):
        await team.reconciler.reconcile(KEY)

    assert api.accepted["one"] == "Forbidden"
    assert not [name for kind, _, name in api.objects if kind in {kinds.DEPLOYMENT, kinds.SERVICE}]


async def test_objects_of_the_last_spec_stay_when_a_name_is_taken() -> None:
    api = Api()
    team = Team(api=api)
    team.ask("one")
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    before = {key: obj for key, obj in api.objects.items() if key[0] is not kinds.MODEL_DEPLOYMENT}
    api._put((kinds.SERVICE, "team", "one-headless"), foreign(kinds.SERVICE, "one-headless"))
    team.ask("one", traffic={"mode": "Direct"})
    again_s = [(await team.reconciler.reconcile(KEY)).requeue_s for _ in range(3)]

    assert api.accepted["one"] == "Conflict"
    assert again_s == [CONFLICT_REQUEUE_S] * 3
    assert {key: api.objects[key] for key in before} == before
    assert AcceptedSpecs(team.caches).get(KEY) is not None
    assert "AcceptedSpecEdited" not in team.event_reasons()

    del api.objects[kinds.SERVICE, "team", "one-headless"]
    await team.reconciler.reconcile(KEY)
    assert api.accepted["one"] == "Accepted"
    assert (kinds.SERVICE, "team", "one-headless") in api.objects


async def test_a_rejected_deletion_is_reported_and_stops_no_other() -> None:
    class Keeping(Api):
        """An API server with a policy against deletions of PodDisruptionBudgets."""

        @override
        async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
            if kind is kinds.PDB:
                raise errors.Refused(403, "deletions are not allowed")
            await super().delete(kind, namespace, name, seen=seen)
            self.caches.children[kind]._store(Key(namespace, name), None)

    team = Team(api=Keeping())
    team.ask("one")
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    team.ask("one", traffic={"mode": "Direct"})
    again_s = [(await team.reconciler.reconcile(KEY)).requeue_s for _ in range(3)]

    assert team.api.accepted["one"] == "Forbidden"
    assert again_s == [0.0, REJECTED_WRITE_REQUEUE_S, REJECTED_WRITE_REQUEUE_S]
    left = {kind for kind, _, name in team.api.objects if name == "one-balancer"}
    assert left == {kinds.PDB, kinds.CONFIG_MAP}


@pytest.mark.parametrize(
    ("denied", "failure", "reason"),
    [("template", None, "Forbidden"), ("", errors.Busy(500, "failed calling webhook"), "Accepted")],
)
async def test_a_surplus_hpa_is_deleted_while_writes_are_rejected(
    denied: str, failure: Exception | None, reason: str
) -> None:
    api = Denying()
    team = Team(api=api)
    team.ask("one")
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    service = api.objects[kinds.SERVICE, "team", "one"]
    target = {"apiVersion": kinds.MODEL_DEPLOYMENT.api_version, "kind": "ModelDeployment", "name": "one"}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"scaleTargetRef": target}}
    team.seen(kinds.HPA, "one", hpa | {"metadata": dict(service["metadata"])})
    api.denied = denied
    api.errors |= {"Deployment": failure} if failure else {}
    team.ask("one", scaling={"policy": "Planner", "maxReplicas": 4}, runtime={"image": "other/triton:1"})
    for _ in range(2):
        with contextlib.suppress(errors.Busy):
            await team.reconciler.reconcile(KEY)

    assert api.accepted["one"] == reason
    assert (kinds.HPA, "team", "one") not in api.objects


async def test_a_kind_that_the_cluster_no_longer_has_is_reported() -> None:
    api = Api()
    team = Team(api=api)
    api.errors["PodDisruptionBudget"] = errors.NotFound(404, "the server could not find the requested resource")
    team.ask("one")
    again_s = [(await team.reconciler.reconcile(KEY)).requeue_s for _ in range(2)]

    assert api.accepted["one"] == "Forbidden"
    assert again_s == [0.0, REJECTED_WRITE_REQUEUE_S]
    assert (kinds.DEPLOYMENT, "team", "one-a") in api.objects


async def test_a_rejected_copy_of_replicas_is_reported_and_stops_no_write() -> None:
    class Fixed(Api):
        """An API server with a policy against changes of spec.replicas of ModelDeployments."""

        @override
        async def scale(
            self, kind: Kind, obj: Object, *, before: int, after: int, version: str | None = None
        ) -> Object:
            raise errors.Refused(403, "replicas are fixed")

    team = Team(api=Fixed())
    team.ask("one", scaling={"maxReplicas": 4})
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    deployment = team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]
    team.seen(kinds.DEPLOYMENT, "one-a", deployment | {"spec": deployment["spec"] | {"replicas": 3}})
    hpa = foreign(kinds.HPA, "theirs")
    hpa["spec"] = {"scaleTargetRef": {"kind": "Deployment", "name": "one-a"}}
    team.seen(kinds.HPA, "theirs", hpa)
    team.ask("one", scaling={"maxReplicas": 4}, traffic={"mode": "Direct"})
    for _ in range(3):
        await team.reconciler.reconcile(KEY)

    assert team.api.accepted["one"] == "Forbidden"
    assert (kinds.SERVICE, "team", "one-headless") in team.api.objects
    assert team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"]["replicas"] == 3


@pytest.mark.parametrize("failure", [errors.Busy(500, "failed calling webhook"), errors.Unreachable("timeout")])
async def test_servers_are_scaled_while_the_webhook_for_new_config_maps_is_down(failure: Exception) -> None:
    class Down(Denying):
        """An API server whose webhook for new ConfigMaps doesn't answer."""

        @override
        async def apply(
            self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER
        ) -> Object:
            try:
                return await super().apply(kind, obj, subresource=subresource, manager=manager)
            except errors.Refused as error:
                raise failure from error

    api = Down()
    team, scaling = Team(api=api), {"maxReplicas": 4}
    team.ask("one", scaling=scaling)
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    before = api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"]
    api.denied = "ConfigMap"
    team.ask("one", scaling=scaling, replicas=3, batching={"maxBatchSize": 4})
    for _ in range(3):
        with pytest.raises(type(failure)):
            await team.reconciler.reconcile(KEY)

    assert api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"] == {**before, "replicas": 3}
    assert AcceptedSpecs(team.caches).get(KEY) is not None


async def test_the_accepted_spec_stays_while_its_digest_cannot_be_written() -> None:
    team = Team()
    team.ask("one", scaling={"maxReplicas": 4})
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    before = team.accepted_text("one")
    team.api.errors["ControllerRevision"] = errors.Refused(403, "exceeded quota: count/controllerrevisions.apps=1")
    team.ask("one", scaling={"maxReplicas": 8}, batching={"maxBatchSize": 4})
    for _ in range(3):
        await team.reconciler.reconcile(KEY)

    # A new process reads both from the cluster.
    assert AcceptedSpecs(team.caches).get(KEY) is not None
    assert team.accepted_text("one") == before
    assert "AcceptedSpecEdited" not in team.event_reasons()


class Quota(Api):
    """An API server with a ResourceQuota on `count/controllerrevisions.apps`."""

    @override
    async def apply(self, kind: Kind, obj: Object, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Object:
        revisions = [name for stored, _, name in self.objects if stored is kinds.CONTROLLER_REVISION]
        name = obj["metadata"]["name"]
        if kind is kinds.CONTROLLER_REVISION and name not in revisions and len(revisions) >= HISTORY_LIMIT:
            raise errors.Refused(403, f"controllerrevisions.apps {name} is forbidden: exceeded quota: objects")
        return await super().apply(kind, obj, subresource=subresource, manager=manager)

    @override
    async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
        await super().delete(kind, namespace, name, seen=seen)
        self.caches.children[kind]._store(Key(namespace, name), None)


async def test_revisions_beyond_the_limit_make_room_for_one_that_a_quota_rejects() -> None:
    team = Team(api=Quota())
    for size in range(1, HISTORY_LIMIT + 3):
        team.ask("one", batching={"maxBatchSize": size}, rollout={"strategy": "Replace"})
        for _ in range(4):
            with contextlib.suppress(errors.Conflicted):
                await team.reconciler.reconcile(KEY)
        deployment = team.api.objects[kinds.DEPLOYMENT, "team", names.server("one", "a")]
        present = {name for kind, _, name in team.api.objects if kind is kinds.CONTROLLER_REVISION}
        key = deployment["spec"]["template"]["metadata"]["labels"][names.REVISION_LABEL]
        assert names.revision("one", key) in present
        assert len(present) == min(size, HISTORY_LIMIT)
    assert team.api.accepted["one"] == "Accepted"


async def test_the_revision_of_present_servers_stays_while_a_policy_rejects_its_successors() -> None:
    class Policy(Denying):
        """An API server that rejects templates with another image, and shows deletions in the caches."""

        @override
        async def delete(self, kind: Kind, namespace: str, name: str, *, seen: Object | None = None) -> None:
            await super().delete(kind, namespace, name, seen=seen)
            self.caches.children[kind]._store(Key(namespace, name), None)

    api = Policy()
    team, scaling = Team(api=api), {"maxReplicas": 4}
    team.ask("one", scaling=scaling)
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    before = api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"]
    api.denied = "template"
    for number in range(HISTORY_LIMIT + 2):
        team.ask("one", scaling=scaling, replicas=1 + number % 4, runtime={"image": f"other/triton:{number}"})
        for _ in range(3):
            with contextlib.suppress(errors.Conflicted):
                await team.reconciler.reconcile(KEY)
    assert api.objects[kinds.DEPLOYMENT, "team", "one-a"]["spec"] == {**before, "replicas": 1 + number % 4}
    key = before["template"]["metadata"]["labels"][names.REVISION_LABEL]
    assert (kinds.CONTROLLER_REVISION, "team", names.revision("one", key)) in api.objects


async def test_a_restart_by_kubectl_is_not_undone() -> None:
    team = settled()
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    deployment = copy.deepcopy(team.api.objects[kinds.DEPLOYMENT, "team", "one-a"])
    annotations = deployment["spec"]["template"]["metadata"].setdefault("annotations", {})
    annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
    deployment["metadata"]["generation"] = 2
    team.seen(kinds.DEPLOYMENT, "one-a", deployment)
    before = team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]["metadata"]["resourceVersion"]
    for _ in range(3):
        await team.reconciler.reconcile(KEY)
    assert team.api.objects[kinds.DEPLOYMENT, "team", "one-a"]["metadata"]["resourceVersion"] == before
