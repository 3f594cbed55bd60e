"""The plan of a reconcile, from views made by hand."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from halcyon.api.conditions import Reason
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.objects.actuator import Actuator
from halcyon.control.objects.child_names import every_child
from halcyon.control.state.scope import Scope, SourceState
from halcyon.kube import kinds
from halcyon.metricsapi import api_service
from halcyon.metricsapi.api_service import ExternalMetricsApi
from halcyon.render import revision
from halcyon.render.revision import Content
from tests.drawn import draws
from tests.strategies import documents
from tests.unit.control.scope_builders import PVC, UID, applied_children, conflicting_object, resource, scope_of
from tests.unit.render.rendered import SITE

MISSING = SourceState(missing="PersistentVolumeClaim team/models doesn't exist")
INVALID = {"batching": {"maxBatchSize": 0}}
SCALING = {"scaling": {"maxReplicas": 4}}
OURS = ExternalMetricsApi(ours=True, why="Halcyon serves external.metrics.k8s.io", tolerance=True)
OLD = replace(OURS, tolerance=False)
"""Of a cluster whose HPAs have no tolerance of their own."""


def after(before: Scope, spec: dict[str, Any] | None = None, **fields: Any) -> Scope:
    """The view once `before` was applied, with another spec perhaps."""
    planned = make(before)
    assert planned.target is not None
    return scope_of(
        spec,
        children=applied_children(before),
        revisions=(planned.target, *before.revisions),
        config_maps=tuple(revision.config_maps(planned.target, "digits")),
        **fields,
    )


def planned_children(planned: ReconcilePlan) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in (*planned.first, *planned.then)}


def deployment(planned: ReconcilePlan) -> dict[str, Any]:
    (manifest,) = (o for o in planned.then if o["metadata"]["name"] == "digits-a" and o["kind"] == "Deployment")
    spec: dict[str, Any] = manifest["spec"]
    return spec


def test_a_valid_spec_is_accepted_with_every_child() -> None:
    planned = make(scope_of())

    assert planned.acceptance.accepted
    assert planned.acceptance.reason is Reason.ACCEPTED
    assert {k for k, _ in planned_children(planned)} == {
        "ConfigMap", "ControllerRevision", "Deployment", "ServiceAccount", "Role", "RoleBinding", "Service",
        "PodDisruptionBudget",
    }  # fmt: skip
    assert planned.actuator is Actuator.NONE
    assert planned.replicas == 1
    assert planned.delete == ()


@given(documents())
@draws(1.5)
def test_every_child_of_a_fixed_name_is_one_that_is_looked_for(document: dict[str, Any]) -> None:
    needed = {(kind.kind, name) for kind, name in every_child("digits")}
    hashed = {"ControllerRevision", "ConfigMap"}
    planned = make(scope_of(document, metrics_api=OURS))

    assert {(k, n) for k, n in planned_children(planned) if k not in hashed} <= needed
    assert ("ConfigMap", "digits-balancer") in needed


def test_referenced_children_come_first() -> None:
    planned = make(scope_of())

    assert [o["kind"] for o in planned.first] == ["ConfigMap", "ControllerRevision", "ServiceAccount", "Role"]
    assert "RoleBinding" in {o["kind"] for o in planned.then}


def test_a_spec_that_was_never_valid_makes_nothing() -> None:
    planned = make(scope_of(INVALID))

    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.INVALID)
    assert planned.acceptance.message.startswith("spec.batching.maxBatchSize is 0")
    assert (planned.first, planned.then, planned.delete, planned.spec) == ((), (), (), None)
    assert planned.replicas == 0


def test_an_invalid_spec_leaves_what_was_accepted_as_it_was() -> None:
    good = scope_of({"traffic": {"queueLimit": 77}})
    planned = make(after(good, INVALID))

    assert planned.acceptance.reason is Reason.INVALID
    assert planned.spec is not None
    assert planned.spec.traffic.queue_limit == 77
    assert applied_children(good) == applied_children(good, planned)


def test_replicas_are_followed_while_the_spec_is_invalid() -> None:
    planned = make(after(scope_of({"replicas": 2}), INVALID | {"replicas": 5}))

    assert planned.replicas == 5
    assert deployment(planned)["replicas"] == 5


@pytest.mark.parametrize("count", [-1, 1001, "3", None])
def test_malformed_replicas_are_not_followed(count: Any) -> None:
    planned = make(after(scope_of({"replicas": 2}), {"replicas": count} | INVALID))

    assert planned.replicas == 1


def test_a_missing_source_makes_nothing_where_nothing_was() -> None:
    planned = make(scope_of(source=MISSING))

    assert planned.acceptance.reason is Reason.SOURCE_NOT_FOUND
    assert planned.acceptance.message == MISSING.missing
    assert planned.then == ()


def test_a_source_the_cluster_cannot_have_is_rejected_and_serving_continues() -> None:
    lacking = SourceState(lacking="no image volumes")
    before = scope_of()
    now = after(before, before.resource["spec"], source=lacking)

    assert make(scope_of(source=lacking)).then == ()
    planned = make(now)
    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.INVALID)
    assert planned.acceptance.message == "no image volumes"
    assert planned.target == make(before).target


def test_a_source_that_vanishes_leaves_the_servers_as_they_were() -> None:
    before = scope_of({"model": {"source": {"configMap": {"name": "m", "items": [{"key": "a", "path": "1/a"}]}}}},
                  source=SourceState(content=Content(data={"a": "x"}, binary={})))  # fmt: skip
    now = after(before, before.resource["spec"], source=replace(MISSING))
    planned = make(now)

    assert planned.acceptance.reason is Reason.SOURCE_NOT_FOUND
    assert planned.target == make(before).target
    assert deployment(planned) == deployment(make(before))
    assert planned.delete == ()


def test_a_stored_spec_that_no_version_understands_is_as_none() -> None:
    now = after(scope_of(), INVALID)
    kept = copy.deepcopy(dict(now.children))
    kept[kinds.CONFIG_MAP, "digits-balancer"]["data"]["accepted.json"] = "{"

    assert make(replace(now, children=kept)).spec is None


def test_an_unchanged_spec_is_served_from_its_record_by_a_newer_operator() -> None:
    before = scope_of()
    newer = replace(before.site, operator_image="localhost/halcyon-operator:next", server_image="localhost/triton:next")
    planned = make(replace(after(before), site=newer))

    assert deployment(planned) == deployment(make(before))
    (balancer,) = (o for o in planned.then if o["kind"] == "Deployment" and o["metadata"]["name"] == "digits-balancer")
    assert balancer["spec"]["template"]["spec"]["initContainers"][0]["image"].endswith(":next")


def test_a_changed_spec_is_a_new_revision_with_a_newer_number() -> None:
    before = scope_of({"batching": {"maxBatchSize": 4}})
    changed = after(before, {"batching": {"maxBatchSize": 8}})
    back = after(changed, before.resource["spec"])
    first, second, third = (make(v).target for v in (before, changed, back))

    assert first is not None
    assert second is not None
    assert third is not None
    assert [r.number for r in (first, second, third)] == [1, 2, 3]
    assert first.key == third.key != second.key
    assert first.template == third.template


def test_changed_replicas_change_the_replicas_alone() -> None:
    before = scope_of({"replicas": 2})
    was, now = applied_children(before), applied_children(after(before, {"replicas": 7}))
    differs = {name for (kind, name), obj in now.items() if obj != was[kind, name]}

    assert differs == {"digits-a", "digits-balancer"}
    deployed = copy.deepcopy(now[kinds.DEPLOYMENT, "digits-a"])
    assert deployed["spec"].pop("replicas") == 7
    assert deployed["spec"].items() <= was[kinds.DEPLOYMENT, "digits-a"]["spec"].items()
    # More pods than server lines were reserved for: the balancer's plan alone follows.
    assert now[kinds.DEPLOYMENT, "digits-balancer"] == was[kinds.DEPLOYMENT, "digits-balancer"]


@pytest.mark.parametrize(
    ("scaling", "api", "foreign", "actuator", "why"),
    [
        (None, OURS, "", Actuator.NONE, "spec.scaling is not set"),
        ({}, OURS, "", Actuator.HPA, "Auto: Halcyon serves"),
        ({"actuator": "Auto"}, OURS, "", Actuator.HPA, "Auto: Halcyon serves"),
        ({}, OLD, "", Actuator.DIRECT, "Auto: HPAs in this cluster do not support a configurable tolerance"),
        ({"policy": "Rules"}, OLD, "", Actuator.HPA, "Auto: Halcyon serves"),
        ({"actuator": "HPA"}, OLD, "", Actuator.HPA, "spec.scaling.actuator is HPA, but HPAs in this cluster"),
        ({}, ExternalMetricsApi(ours=False, why="KEDA serves it"), "", Actuator.DIRECT, "Auto: KEDA serves it"),
        ({"actuator": "HPA"}, ExternalMetricsApi(ours=False, why=""), "", Actuator.HPA, "spec.scaling.actuator is HPA"),
        ({"actuator": "Direct"}, OURS, "", Actuator.DIRECT, "spec.scaling.actuator is Direct"),
        ({"actuator": "HPA"}, OURS, "HorizontalPodAutoscaler x", Actuator.NONE, "HorizontalPodAutoscaler x scales"),
    ],
)
def test_the_actuator_is_chosen_and_says_why(
    scaling: dict[str, Any] | None, api: ExternalMetricsApi, foreign: str, actuator: Actuator, why: str
) -> None:
    spec = {} if scaling is None else {"scaling": {"maxReplicas": 4} | scaling}
    planned = make(scope_of(spec, metrics_api=api, external_hpa=foreign))

    assert planned.actuator is actuator
    assert planned.actuator_why.startswith(why)
    assert (("HorizontalPodAutoscaler", "digits") in planned_children(planned)) is (actuator is Actuator.HPA)


@pytest.mark.parametrize("spec", [{}, {"scaling": {"maxReplicas": 4, "actuator": "Direct"}}])
def test_an_autoscaler_of_ours_that_is_no_longer_wanted_goes(spec: dict[str, Any]) -> None:
    planned = make(after(scope_of(SCALING, metrics_api=OURS), spec, metrics_api=OURS))

    assert (kinds.HPA, "digits") in planned.delete


def test_an_external_hpa_is_never_deleted() -> None:
    planned = make(
        scope_of(children={(kinds.HPA, "digits"): conflicting_object(kinds.HPA, "digits")}, external_hpa="digits")
    )

    assert planned.delete == ()
    assert planned.conflicts == ()


BELOW = {"digits-a": "HorizontalPodAutoscaler theirs"}


def scaled_below(
    spec: dict[str, Any], *, replicas: int, canary: int = 0, below: dict[str, str] = BELOW, **fields: Any
) -> Scope:
    """Served, and then somebody else's autoscaler has set the Deployment's count."""
    now = after(scope_of(spec), spec, deployment_hpas=below, **fields)
    here = copy.deepcopy(now.children[kinds.DEPLOYMENT, "digits-a"])
    here["spec"]["replicas"] = replicas
    beside = {
        **here,
        "metadata": {**here["metadata"], "name": "digits-b"},
        "spec": {**here["spec"], "replicas": canary},
    }
    slots = {(kinds.DEPLOYMENT, "digits-a"): here} | ({(kinds.DEPLOYMENT, "digits-b"): beside} if canary else {})
    return replace(now, children={**now.children, **slots})


ELASTIC = {"replicas": 2, "scaling": {"minReplicas": 1, "maxReplicas": 8}}


@pytest.mark.parametrize(
    ("now", "count", "to_be_written"),
    [
        (scaled_below(ELASTIC, replicas=5), 5, 5),
        (scaled_below({"replicas": 2}, replicas=5), 5, None),
        (scaled_below({**ELASTIC, "scaling": {"maxReplicas": 8, "mode": "Paused"}}, replicas=5), 5, None),
        (scaled_below(ELASTIC, replicas=20), 8, 8),
        (scaled_below(ELASTIC | {"scaling": {"minReplicas": 3, "maxReplicas": 8}}, replicas=2), 3, 3),
    ],
    ids=["scaled", "fixed", "paused", "above the limits", "below them"],
)
def test_the_replicas_of_an_external_hpa_on_our_deployment_stay(
    now: Scope, count: int, to_be_written: int | None
) -> None:
    planned = make(now)

    assert deployment(planned)["replicas"] == planned.replicas == count
    assert planned.adopted_replicas == to_be_written
    assert planned.actuator is Actuator.NONE
    assert planned.actuator_why == (
        "HorizontalPodAutoscaler theirs scales Deployment digits-a, which Halcyon manages for this ModelDeployment"
    )


@pytest.mark.parametrize(
    ("now", "count"),
    [
        (scaled_below(ELASTIC, replicas=5, below={}), 2),
        (scaled_below(ELASTIC, replicas=5, below={"digits-b": "HorizontalPodAutoscaler theirs"}), 2),
        (scaled_below(ELASTIC, replicas=0), 2),
        (scaled_below({"replicas": 0}, replicas=5), 0),
        (scaled_below(ELASTIC, replicas=5, canary=1), 2),
    ],
    ids=["none", "on the other slot", "at rest with its Deployment", "switched off", "during a canary"],
)
def test_replicas_without_an_hpa_are_ours(now: Scope, count: int) -> None:
    planned = make(now)

    assert (planned.replicas, planned.external_hpa, planned.adopted_replicas) == (count, None, None)


STATEFUL = Content(data={"config.pbtxt": "sequence_batching { }"}, binary={})
FILES = {"configMap": {"name": "files", "items": [{"key": "config.pbtxt", "path": "config.pbtxt"}]}}


@pytest.mark.parametrize("wrong", [{}, INVALID, {"traffic": {"service": {"annotations": {"theirs": "x"}}}}])
def test_a_stateful_model_stays_at_one_replica_while_its_spec_is_rejected(wrong: dict[str, Any]) -> None:
    spec = {"replicas": 1, "model": {"source": FILES}}
    before = scope_of(spec, source=SourceState(content=STATEFUL))
    planned = make(after(before, spec | {"replicas": 3} | wrong, source=SourceState(content=STATEFUL)))

    assert not planned.acceptance.accepted
    assert (planned.replicas, deployment(planned)["replicas"]) == (1, 1)


def test_a_stateful_model_stays_at_one_replica_despite_an_hpa() -> None:
    spec = {"replicas": 1, "model": {"source": FILES}}
    before = scope_of(spec, source=SourceState(content=STATEFUL))
    planned = make(before)
    assert planned.acceptance.accepted
    assert planned.target is not None
    here = applied_children(before, planned)
    here[kinds.DEPLOYMENT, "digits-a"]["spec"]["replicas"] = 3
    now = replace(before, children=here, revisions=(planned.target,), deployment_hpas=BELOW)

    assert make(now).replicas == 1


def test_a_schedule_that_can_never_open_is_refused_by_its_name() -> None:
    window = {"name": "day", "start": "0 8 31 2 *", "duration": "8h", "timeZone": "Mars/Olympus", "minReplicas": 2}
    planned = make(scope_of({"scaling": {"maxReplicas": 4, "schedules": [window]}}))

    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.INVALID)
    assert planned.acceptance.message == (
        'spec.scaling.schedules: schedule day: start "0 8 31 2 *" is not a valid cron expression (bad day-of-month); for example "0 8 * * 1-5"; '
        'spec.scaling.schedules: schedule day: timeZone "Mars/Olympus" is not in the tz database; for example "Europe/Berlin"'
    )


def test_replicas_stay_inside_the_limits_of_scaling() -> None:
    assert make(scope_of(SCALING | {"replicas": 9})).replicas == 4


def test_our_children_are_maintained_beside_a_conflicting_object() -> None:
    before = scope_of()
    now = after(before, {"replicas": 3})
    children = dict(now.children) | {(kinds.SERVICE, "digits"): conflicting_object(kinds.SERVICE, "digits")}
    del children[kinds.PDB, "digits-a"]
    planned = make(replace(now, children=children))

    assert deployment(planned)["replicas"] == 3
    assert ("Service", "digits") not in planned_children(planned)
    assert ("PodDisruptionBudget", "digits-a") not in planned_children(planned)


def test_a_record_in_another_format_is_not_written_over() -> None:
    first = scope_of()
    children = applied_children(first)
    (record,) = (key for key in children if key[0] is kinds.CONTROLLER_REVISION)
    children[record]["data"] = {"format": 99}
    planned = make(scope_of(children=children))

    assert planned.acceptance.accepted
    assert ("ControllerRevision", record[1]) not in planned_children(planned)
    assert deployment(planned) == deployment(make(first))


def test_the_accepted_spec_is_stored_without_its_replicas() -> None:
    first, second = (
        applied_children(scope_of({"replicas": n}))[kinds.CONFIG_MAP, "digits-balancer"]["data"] for n in (1, 2)
    )

    assert first["accepted.json"] == second["accepted.json"]
    assert json.loads(first["accepted.json"])["model"] == {"source": PVC}


def test_planning_twice_gives_the_same_plan() -> None:
    assert make(scope_of(SCALING)) == make(scope_of(SCALING))


def test_every_child_is_ours() -> None:
    for obj in applied_children(scope_of()).values():
        assert obj["metadata"]["ownerReferences"][0]["uid"] == UID == resource()["metadata"]["uid"]


HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"


def service(planned: ReconcilePlan) -> dict[str, Any]:
    (manifest,) = (o for o in planned.then if (o["kind"], o["metadata"]["name"]) == ("Service", "digits"))
    return manifest


def test_a_forbidden_annotation_is_named_and_the_accepted_spec_keeps_serving() -> None:
    before = scope_of({"traffic": {"service": {"annotations": {HOSTNAME: "a.example"}}}})
    document = {"traffic": {"service": {"annotations": {HOSTNAME: "b.example", "example.com/x": ""}}}}
    planned = make(after(before, document))

    assert (planned.acceptance.accepted, planned.acceptance.reason) == (False, Reason.INVALID)
    assert "spec.traffic.service.annotations has example.com/x, which this site" in planned.acceptance.message
    assert "external-dns.alpha.kubernetes.io/" in planned.acceptance.message
    assert service(planned)["metadata"]["annotations"] == {HOSTNAME: "a.example"}


def test_a_site_may_allow_other_annotations_or_none() -> None:
    document = {"traffic": {"service": {"annotations": {"example.com/x": "1"}}}}
    own = replace(SITE, service_annotations=("example.com/",))
    assert service(make(scope_of(document, site=own)))["metadata"]["annotations"] == {"example.com/x": "1"}
    refused = make(scope_of(document, site=replace(SITE, service_annotations=()))).acceptance
    assert "no annotations are allowed" in refused.message


POD = {"podLabels": {"team": "a"}, "podAnnotations": {"karpenter.sh/do-not-disrupt": "true"}}


def test_allowed_pod_metadata_is_on_the_template_and_in_no_selector() -> None:
    own = replace(SITE, model_pod_labels=("team",), model_pod_annotations=("karpenter.sh/",))
    planned = make(scope_of({"runtime": POD}, site=own))
    (servers,) = (o for o in planned.then if (o["kind"], o["metadata"]["name"]) == ("Deployment", "digits-a"))

    assert servers["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    annotations = servers["spec"]["template"]["metadata"]["annotations"]
    assert POD["podAnnotations"].items() <= annotations.items()
    assert annotations.keys() - POD["podAnnotations"].keys() == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    }
    assert not {"team"} & {*servers["metadata"]["labels"], *servers["spec"]["selector"]["matchLabels"]}


def test_forbidden_pod_metadata_is_named_with_its_option() -> None:
    # Without a slash, an entry is a whole key.
    site = replace(SITE, model_pod_labels=("te", "kueue.x-k8s.io/"), model_pod_annotations=())
    refused = make(scope_of({"runtime": POD}, site=site)).acceptance

    assert (refused.accepted, refused.reason) == (False, Reason.INVALID)
    assert (
        "spec.runtime.podLabels has team, which this site does not allow; allowed: te, kueue.x-k8s.io/* "
        "(operator option --model-pod-labels, chart value modelPodLabels)"
    ) in refused.message
    assert "no podAnnotations are allowed (operator option --model-pod-annotations" in refused.message


def test_a_service_account_needs_permission_unless_it_is_the_default() -> None:
    refused = make(scope_of({"runtime": {"serviceAccountName": "deployer"}})).acceptance

    assert (refused.accepted, refused.reason) == (False, Reason.POLICY_DENIED)
    assert "deployer, which this site does not allow (allowed: none; chart value sitePolicy.pods" in refused.message
    assert make(scope_of({"runtime": {"serviceAccountName": "default"}})).acceptance.accepted


def test_a_revision_with_the_number_of_another_gets_a_newer_number() -> None:
    """A new leader may write a revision before it has seen that of the former leader."""
    before = scope_of({"batching": {"maxBatchSize": 4}})
    now = after(before, {"batching": {"maxBatchSize": 8}})
    (other,), mine = now.revisions, make(now).target
    assert mine is not None
    tied = replace(now, revisions=tuple(replace(r, number=2) for r in (other, mine)))
    planned = make(tied)

    assert planned.target is not None
    assert (planned.target.key, planned.target.number) == (mine.key, 3)


@pytest.mark.parametrize("unknown", [replace(OURS, tolerance=None), api_service.UNKNOWN])
def test_the_hpa_stays_while_it_is_unknown_whether_it_works(unknown: ExternalMetricsApi) -> None:
    """As after a start of the operator while the API server is busy, or an admission webhook for HPAs is down."""
    before = scope_of(SCALING, metrics_api=OURS)
    planned = make(after(before, SCALING, metrics_api=unknown))

    assert (kinds.HPA, "digits") not in planned.delete
    assert applied_children(after(before, SCALING, metrics_api=unknown)) == applied_children(
        after(before, SCALING, metrics_api=OURS)
    )
    assert make(scope_of(SCALING, metrics_api=unknown)).actuator is Actuator.DIRECT
