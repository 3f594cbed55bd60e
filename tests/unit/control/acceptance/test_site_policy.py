"""The site's policy at reconcile time: what it refuses, what keeps serving, and what tenants can't get past it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.conditions import Reason, Type, find
from halcyon.api.policy.site_policy import SitePolicy
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.state.scope import Gpus, Scope
from halcyon.control.status import status
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Kind
from halcyon.render import names, revision
from halcyon.render.revision import Revision
from tests.policies import LIMITS, METRIC, policy
from tests.unit.control.scope_builders import PVC, applied_children, scope_of
from tests.unit.render.rendered import SITE

KEPT = "the last accepted spec stays in effect"
CPU: dict[str, Any] = {"runtime": {"gpu": {"count": 0}}}
ACCEPTED = (kinds.CONFIG_MAP, names.balancer("digits"))
Children = dict[tuple[Kind, str], Object]


def scope_under(spec: dict[str, Any], limits: dict[str, Any], **fields: Any) -> Scope:
    return scope_of(spec, site=replace(SITE, policy=policy(limits)), **fields)


def records(children: Children) -> tuple[Revision, ...]:
    revisions = (revision.read(o) for (kind, _), o in children.items() if kind is kinds.CONTROLLER_REVISION)
    return tuple(r for r in revisions if r is not None)


def later(before: Scope, spec: dict[str, Any], limits: dict[str, Any], **fields: Any) -> Scope:
    """The view of another spec, under another policy, once `before` was applied."""
    children = fields.pop("children", None) or applied_children(before)
    return scope_under(spec, limits, children=children, revisions=records(children), **fields)


def servers(planned: ReconcilePlan) -> int:
    (deployment,) = (o for o in planned.then if o["kind"] == "Deployment" and o["metadata"]["name"] == "digits-a")
    count: int = deployment["spec"]["replicas"]
    return count


@pytest.mark.parametrize("path", [path for path in LIMITS if path != "triton.warnBelow"])
def test_a_forbidden_spec_is_rejected_and_the_accepted_one_keeps_serving(path: str) -> None:
    limit, bad, words, _ = LIMITS[path]
    good = scope_under({"traffic": {"queueLimit": 77}} | {k: v for k, v in bad.items() if k == "replicas"}, {})
    planned = make(later(good, bad, {path: limit}))

    assert planned.acceptance.reason is Reason.POLICY_DENIED
    assert all(word in planned.acceptance.message for word in words)
    assert planned.spec is not None
    assert planned.spec.traffic.queue_limit == 77
    assert applied_children(good) == applied_children(good, planned)


def test_a_spec_that_was_never_accepted_makes_nothing() -> None:
    planned = make(scope_under({"replicas": 9}, {"limits.replicas": 8}))

    assert planned.acceptance.reason is Reason.POLICY_DENIED
    assert not planned.first
    assert not planned.then


def test_the_status_names_the_refusal_in_each_condition_that_needs_a_person() -> None:
    before = later(scope_under(CPU, {}), CPU | {"replicas": 9}, {"limits.replicas": 8})
    conditions = status.make(before, make(before), now="2026-01-01T00:00:00Z")["conditions"]
    by_type = {c["type"]: c for c in conditions}

    for type_ in ("Accepted", "Ready", "Stalled"):
        assert by_type[type_]["reason"] == "PolicyDenied"
        assert "is 9, but this site allows at most 8" in by_type[type_]["message"]
    assert by_type["Accepted"]["message"].endswith(KEPT)


@pytest.mark.parametrize(
    ("limits", "count"), [({"limits.replicas": 4}, 4), ({"limits.gpusPerModel": 6}, 6), ({"limits.replicas": 12}, 9)]
)
def test_scale_is_no_way_past_a_limit(limits: dict[str, Any], count: int) -> None:
    changes = {"replicas": 9} | ({"batching": {"maxBatchSize": 0}} if count == 9 else {})

    assert servers(make(later(scope_under({"replicas": 2}, {}), changes, limits))) == count


def test_a_limit_takes_nothing_from_a_model_that_has_more_already() -> None:
    before = scope_under({"replicas": 7}, {})
    assert servers(make(later(before, {"replicas": 7}, {"limits.replicas": 4}))) == 7
    assert servers(make(later(before, {"replicas": 9}, {"limits.replicas": 4}))) == 7
    assert servers(make(later(before, {"replicas": 6}, {"limits.replicas": 4}))) == 6
    assert make(later(before, {"replicas": 4}, {"limits.replicas": 4})).acceptance.accepted


def test_an_exempt_namespace_is_free() -> None:
    free = SitePolicy.model_validate({"exemptNamespaces": ["team"], "limits": {"replicas": 1, "gpusPerNamespace": 0}})
    assert make(scope_of({"replicas": 9}, site=replace(SITE, policy=free))).acceptance.accepted


@pytest.mark.parametrize(
    ("elsewhere", "held", "accepted"), [(4, 0, True), (5, 0, False), (5, 4, True), (5, 3, False), (90, 4, True)]
)
def test_a_namespaces_gpus_go_to_the_first_model(elsewhere: int, held: int, accepted: bool) -> None:
    document = {"scaling": {"maxReplicas": 2}, "runtime": {"gpu": {"count": 2}}}
    planned = make(scope_under(document, {"limits.gpusPerNamespace": 8}, gpus=Gpus(held, elsewhere)))

    assert planned.acceptance.accepted is accepted
    if not accepted:
        assert planned.acceptance.reason is Reason.POLICY_DENIED
        assert "this model can use up to 4 GPUs" in planned.acceptance.message
        assert (
            f"the other models of namespace team up to {elsewhere} GPUs. The limit for a namespace is 8 GPUs "
            in planned.acceptance.message
        )


def test_scale_is_no_way_to_the_gpus_of_others() -> None:
    before = scope_under({"replicas": 2}, {})
    denied = later(before, {"replicas": 9}, {"limits.gpusPerNamespace": 8}, gpus=Gpus(2, 5))
    assert servers(make(denied)) == 3


def test_the_operator_s_own_key_is_given_to_no_model() -> None:
    document = {
        "runtime": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "halcyon-tls", "key": "tls.key"}}}]}
    }
    here, elsewhere = (replace(SITE, own_secret=f"{namespace}/halcyon-tls") for namespace in ("team", "system"))

    denied = make(scope_of(document, site=here)).acceptance
    assert (denied.reason, denied.message) == (
        Reason.POLICY_DENIED, ("the spec refers to Secret halcyon-tls, which contains the operator's private key; use "
        "another Secret"),
    )  # fmt: skip
    assert make(scope_of(document, site=elsewhere)).acceptance.accepted


def test_advice_is_a_condition_of_its_own_and_the_spec_is_accepted() -> None:
    _, old, words, new = LIMITS["triton.warnBelow"]
    for spec, advised in ((old, True), (new, False)):
        scope = scope_under(spec, {"triton.warnBelow": "26.07"})
        planned = make(scope)
        condition = find(status._conditions(scope, planned), Type.POLICY_WARNING)
        assert planned.acceptance.accepted
        assert (condition is not None) is advised
        if condition is not None:
            assert condition.reason is Reason.POLICY_ADVICE
            assert all(word in condition.message for word in words)


def tampered(children: Children, **spec: Any) -> Children:
    """What a tenant may do: edit the ConfigMap in which the accepted spec lies."""
    changed = copy.deepcopy(children)
    data = changed[ACCEPTED]["data"]
    data["accepted.json"] = json.dumps(json.loads(data["accepted.json"]) | spec)
    return changed


def test_an_edited_accepted_spec_is_not_in_force() -> None:
    good = scope_under({"replicas": 2, "model": {"source": PVC}}, {})
    edited = tampered(applied_children(good), traffic={"service": {"type": "LoadBalancer"}})
    refused = {"runtime": {"image": "evil.example/x:1"}}
    limits = {"images.registries": ["nvcr.io"], "traffic.serviceTypes": ["ClusterIP"]}

    planned = make(later(good, refused, limits, children=edited))
    assert planned.spec is None
    assert not planned.then
    # A spec that is right needs no memory: it is written there anew.
    assert make(later(good, {"replicas": 2}, limits, children=edited)).acceptance.accepted


def test_an_unsealed_record_of_an_earlier_version_counts() -> None:
    good = scope_under({"traffic": {"queueLimit": 77}}, {})
    children = applied_children(good)
    for (kind, _), obj in children.items():
        if kind is kinds.CONTROLLER_REVISION:
            obj["metadata"].pop("annotations")
    planned = make(later(good, {"replicas": 9}, {"limits.replicas": 8}, children=children))

    assert planned.spec is not None
    assert planned.spec.traffic.queue_limit == 77


def test_each_acceptance_is_sealed_on_the_newest_record_though_the_revision_stays() -> None:
    first = scope_under({"traffic": {"queueLimit": 77}}, {})
    second = later(first, {"traffic": {"queueLimit": 78}}, {})
    (first_record,), (second_record,) = records(applied_children(first)), records(applied_children(second))

    assert first_record.key == second_record.key
    assert first_record.seal != second_record.seal
    planned = make(later(second, {"replicas": 9}, {"limits.replicas": 8}))
    assert planned.spec is not None
    assert planned.spec.traffic.queue_limit == 78


@pytest.mark.parametrize(
    ("limits", "has_prometheus", "words"),
    [
        (
            {},
            True,
            "namespace team may not query Prometheus (chart value sitePolicy.canary.queryNamespaces)",
        ),
        ({"canary.queryNamespaces": ["team"]}, True, ""),
        ({"canary.queryNamespaces": []}, True, "only in the namespaces none"),
        (
            {"canary.queryNamespaces": ["team"]},
            False,
            "this site has no Prometheus (chart value prometheus.url is not set)",
        ),
    ],
)
def test_a_canarys_queries_need_a_prometheus_and_explicit_permission(
    limits: dict[str, Any], has_prometheus: bool, words: str
) -> None:
    site = replace(SITE, policy=policy(limits), has_prometheus=has_prometheus)
    spec = {"rollout": {"canary": {"analysis": {"metrics": [METRIC]}}}}
    acceptance = make(scope_of(spec, site=site)).acceptance

    assert acceptance.accepted == (not words)
    assert words in acceptance.message
    exempt = replace(site, policy=policy(limits).model_copy(update={"exempt_namespaces": ("team",)}))
    assert make(scope_of(spec, site=exempt)).acceptance.accepted == has_prometheus
