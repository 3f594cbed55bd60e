"""Which way requests take, and how one becomes the other: each row of the table in `halcyon.control.desired.routing`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.documents.balancer_plan import PLAN_KEY, BalancerPlan
from halcyon.api.spec.defaults import FALLBACK_BATCH
from halcyon.control.desired.plan import ReconcilePlan, make
from halcyon.control.rollout.canary_progress import PROMOTE
from halcyon.control.rollout.rollout_plan import RolloutPhase
from halcyon.control.state.scope import Scope
from halcyon.control.status.scaling import ignored
from halcyon.kube import kinds
from halcyon.kube.kinds import Kind
from tests.unit.control.rollout.canary_cluster import begun, decided
from tests.unit.control.rollout.deployment_simulation import Cluster, served
from tests.unit.control.scope_builders import applied_children, scope_of

SERVICE = {"traffic": {"mode": "Direct"}}
BESIDE = {kind: (kind, "digits-balancer") for kind in (kinds.DEPLOYMENT, kinds.PDB, kinds.ROLE, kinds.ROLE_BINDING)}
IDENTITY = (kinds.SERVICE_ACCOUNT, "digits-balancer")
HEADLESS = (kinds.SERVICE, "digits-headless")


def planned_children(planned: ReconcilePlan) -> set[tuple[str, str]]:
    return {(o["kind"], o["metadata"]["name"]) for o in (*planned.first, *planned.then)}


def leads_to(planned: ReconcilePlan) -> str:
    (service,) = (o for o in planned.then if (o["kind"], o["metadata"]["name"]) == ("Service", "digits"))
    component: str = service["spec"]["selector"]["app.kubernetes.io/component"]
    return component


def then(before: Scope, spec: dict[str, Any] | None = None, *, balancers: int = 0, available: int = 0) -> Scope:
    """What is there once the plan of `before` was applied, less what it deletes."""
    planned = make(before)
    assert planned.target is not None
    children = {**dict(before.children), **applied_children(before, planned)}
    for child in planned.delete:
        children.pop(child)
    if (deployment := children.get(BESIDE[kinds.DEPLOYMENT])) is not None:
        deployment["status"] = {"availableReplicas": available} if available else {}
    return scope_of(spec, children=children, revisions=(planned.target,), balancers=balancers)


def test_the_service_selects_the_servers_and_no_balancer_child_is_made() -> None:
    planned = make(scope_of(SERVICE))

    assert planned.acceptance.accepted
    assert planned_children(planned) == {
        ("ConfigMap", "digits-balancer"), ("Deployment", "digits-a"), ("PodDisruptionBudget", "digits-a"),
        ("Service", "digits"), ("Service", "digits-headless"), ("Service", "digits-server-a"),
        *((o["kind"], o["metadata"]["name"]) for o in planned.first),
    }  # fmt: skip
    assert {o["kind"] for o in planned.first} == {"ConfigMap", "ControllerRevision"}
    assert leads_to(planned) == "server"


def test_the_service_leads_to_the_servers_before_the_balancers_go() -> None:
    changed = then(scope_of(), SERVICE, balancers=2, available=2)
    planned = make(changed)

    assert leads_to(planned) == "server"
    # Agents that drain still read: theirs stays until they are gone.
    assert set(planned.delete) == {BESIDE[kinds.DEPLOYMENT], BESIDE[kinds.PDB]}
    assert planned.has_surplus_balancers

    draining = then(changed, SERVICE, balancers=1)
    assert make(draining).delete == ()
    assert make(draining).has_surplus_balancers

    drained = then(changed, SERVICE)
    assert set(make(drained).delete) == {BESIDE[kinds.ROLE], BESIDE[kinds.ROLE_BINDING], IDENTITY}
    assert not make(drained).has_surplus_balancers


@pytest.mark.parametrize(("available", "leads"), [(0, "server"), (1, "balancer")])
def test_the_service_stays_with_the_servers_until_a_balancer_is_there(available: int, leads: str) -> None:
    back = then(then(scope_of(SERVICE)), balancers=2, available=available)
    planned = make(back)

    assert ("Deployment", "digits-balancer") in planned_children(planned)
    assert leads_to(planned) == leads
    assert (HEADLESS in planned.delete) is (leads == "balancer")


def test_a_service_of_balancers_keeps_leading_to_them_while_none_is_available() -> None:
    assert leads_to(make(then(scope_of(), available=0))) == "balancer"


@pytest.mark.parametrize("kind", [kinds.DEPLOYMENT, kinds.ROLE])
def test_objects_of_others_are_not_deleted(kind: Kind) -> None:
    changed = then(scope_of(), SERVICE)
    changed.children[BESIDE[kind]]["metadata"]["ownerReferences"] = []

    assert BESIDE[kind] not in make(changed).delete


def planned_class(view: Scope) -> str:
    (written,) = (o for o in make(view).then if (o["kind"], o["metadata"]["name"]) == ("ConfigMap", "digits-balancer"))
    return BalancerPlan.from_json(written["data"][PLAN_KEY]).lower_class


def test_the_plan_keeps_its_lower_class_while_it_is_not_known() -> None:
    assert planned_class(scope_of()) == "None"
    begun = replace(scope_of(), lower_class="Fill")
    assert planned_class(begun) == "Fill"
    # The new leader has not read the BatchInferences yet.
    later = replace(then(begun), lower_class=None)
    assert planned_class(later) == "Fill"
    assert planned_class(replace(later, lower_class="None")) == "None"


@pytest.mark.parametrize(("above", "replicas", "expected"), [(True, 5, 5), (True, 0, 2), (False, 5, 2)])
def test_an_hpa_on_the_balancers_keeps_the_replicas_that_it_has_set(above: bool, replicas: int, expected: int) -> None:
    before = then(scope_of(), balancers=2, available=2)
    before.children[BESIDE[kinds.DEPLOYMENT]]["spec"]["replicas"] = replicas
    theirs = {"digits-balancer": "HorizontalPodAutoscaler theirs"} if above else {}
    now = replace(before, deployment_hpas=theirs)
    planned = make(now)
    objects = {(o["kind"], o["metadata"]["name"]): o for o in planned.then}
    assert objects["Deployment", "digits-balancer"]["spec"]["replicas"] == expected
    plan = BalancerPlan.from_json(objects["ConfigMap", "digits-balancer"]["data"][PLAN_KEY])
    assert plan.balancers == expected
    assert '"balancerReplicas":2' in objects["ConfigMap", "digits-balancer"]["data"]["accepted.json"]
    assert planned.external_hpa is None, "Halcyon still scales the servers"
    condition = ignored(now, planned)
    assert (None if condition is None else condition.message) == (
        f"spec.traffic.balancerReplicas is 2, but HorizontalPodAutoscaler theirs scales Deployment digits-balancer to {expected}; "
        "delete the HPA to use spec.traffic.balancerReplicas"
        if above
        else None
    )


def balancer_plan(cluster: Cluster) -> BalancerPlan:
    return BalancerPlan.from_json(cluster.children[kinds.CONFIG_MAP, "digits-balancer"]["data"][PLAN_KEY])


@pytest.mark.parametrize("strategy", ["Canary", "Auto"])
def test_balancers_keep_the_limits_of_the_serving_batch_size(strategy: str) -> None:
    cluster = served(room=4, count=2, strategy=strategy, canary={"steps": [{"weight": 20, "pause": {}}]})
    requested = cluster.key(batching={"maxBatchSize": 64})
    cluster.settle(rounds=20, step_s=1)
    cluster.annotations = {PROMOTE: requested}
    cluster.settle(rounds=8, step_s=1)
    before = balancer_plan(cluster)
    assert (decided(cluster).phase, before.max_connections) == (RolloutPhase.COMPLETE, 128)

    failed = cluster.key(batching={"maxBatchSize": 2})
    cluster.settle(rounds=0)
    assert balancer_plan(cluster).max_connections == 128
    cluster.bad = {failed} if strategy == "Auto" else set()
    cluster.settle(rounds=60, step_s=15)
    expected = RolloutPhase.ROLLED_BACK if strategy == "Auto" else RolloutPhase.PROGRESSING
    assert (decided(cluster).phase, balancer_plan(cluster).max_connections) == (expected, 128)
    cluster.annotations = {PROMOTE: failed}
    cluster.bad = set()
    cluster.settle(rounds=8, step_s=1)
    assert balancer_plan(cluster).max_connections == (128 if strategy == "Auto" else 4)


def test_an_hpa_keeps_the_queue_target_of_the_serving_batch_size() -> None:
    cluster, _, _ = begun(count=3, steps=[{"weight": 20, "pause": {}}])
    cluster.spec["scaling"] = {"policy": "Rules", "actuator": "HPA", "minReplicas": 1, "maxReplicas": 8}
    targets = []
    for act in ({}, {PROMOTE: cluster.key()}):
        cluster.annotations = act
        cluster.settle(rounds=8, step_s=5)
        (hpa,) = (o for o in make(cluster.look()).then if o["kind"] == "HorizontalPodAutoscaler")
        targets.append(hpa["spec"]["metrics"][0]["external"]["target"]["averageValue"])
    assert targets == [str(FALLBACK_BATCH), "2"]


def route_weights(cluster: Cluster) -> dict[str, int]:
    planned = make(replace(cluster.look(), gateway_api=True))
    (route,) = (o for o in planned.then if o["kind"] == "HTTPRoute")
    return {ref["name"][-1]: ref["weight"] for ref in route["spec"]["rules"][0]["backendRefs"]}


def test_a_route_gives_no_requests_to_a_slot_without_ready_pods() -> None:
    cluster, _, _ = begun(count=3, steps=[{"weight": 20, "pause": {}}])
    cluster.key(traffic={"mode": "Gateway", "gateway": {"name": "edge"}})
    cluster.settle(rounds=4, step_s=1)
    assert route_weights(cluster) == {"a": 80, "b": 20}

    for server in cluster.of("a"):
        server.ready = False
    assert route_weights(cluster) == {"a": 0, "b": 20}
    for server in cluster.of("b"):
        server.ready = False
    assert route_weights(cluster) == {"a": 100, "b": 0}


def test_a_route_gives_no_requests_to_a_canary_of_another_name() -> None:
    cluster = served(room=5, count=3, strategy="Canary", canary={"steps": [{"weight": 20, "pause": {}}]})
    edge = {"mode": "Gateway", "gateway": {"name": "edge"}}
    cluster.annotations = {PROMOTE: cluster.key(traffic=edge)}
    cluster.settle(rounds=8, step_s=1)
    renamed = cluster.key(model={**cluster.spec["model"], "name": "other"})
    cluster.settle(rounds=4, step_s=1)
    assert ({s.slot for s in cluster.servers if s.ready}, decided(cluster).model) == ({"a", "b"}, "digits")
    assert route_weights(cluster) == {"a": 0, "b": 80}

    cluster.annotations = {PROMOTE: renamed}
    cluster.settle(rounds=8, step_s=1)
    assert (route_weights(cluster), decided(cluster).model) == ({"a": 100}, "other")


def test_services_of_routes_stay_while_the_routes_are_not_cached() -> None:
    spec = {"traffic": {"mode": "Gateway", "gateway": {"name": "edge"}}}
    before = replace(scope_of(spec), gateway_api=True)
    planned = make(before)
    assert planned.target is not None
    children = applied_children(before, planned)
    service = (kinds.SERVICE, "digits-route-a")
    assert service in children
    # The operator has just started: caches of routes are filled later than the others.
    children = {child: obj for child, obj in children.items() if child[0] not in kinds.ROUTES}
    now = scope_of(spec, children=children, revisions=(planned.target,))

    assert service not in make(now).delete
