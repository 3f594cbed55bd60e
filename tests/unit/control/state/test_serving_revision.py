"""The serving revision in the states of a rollout, and the settings that follow it: measured capacity, GPUs, balancers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from halcyon.api.documents.balancer_plan import PLAN_KEY, BalancerPlan
from halcyon.api.documents.measured_capacity import MeasuredLine, Served
from halcyon.api.spec.parse import parse
from halcyon.control.autoscaling.sources.model_pods import ModelPods
from halcyon.control.desired.plan import make
from halcyon.control.reconcile.gpu_reservations import GpuReservations
from halcyon.control.rollout.canary_progress import PROMOTE, PROMOTE_STEP
from halcyon.control.state.lookups import gpus_each, serving_key
from halcyon.control.state.scope import Measured
from halcyon.control.state.serving_revision import serving_revision, stored_serving_revision
from halcyon.control.status import capacity
from halcyon.kube import kinds
from halcyon.kube.client import Object
from halcyon.kube.kinds import Key
from halcyon.render import names, revision
from tests.unit.control.rollout.canary_cluster import begun, decided, status_of
from tests.unit.control.rollout.deployment_simulation import Cluster, served
from tests.unit.control.scope_builders import PVC, pod, resource, scope_of
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches, labelled
from tests.unit.control.state.taught_models import SPEC, Model
from tests.unit.render.rendered import SITE


def deployment(slot: str, key: str, replicas: int, *, gpus: int = 0) -> Object:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    template = {"metadata": {"labels": {names.REVISION_LABEL: key}}, "spec": {"containers": [limits]}}
    return labelled(kinds.DEPLOYMENT, f"digits-{slot}", "digits", spec={"replicas": replicas, "template": template})


def server(name: str, key: str, *, ready: bool = True) -> Object:
    result = pod(name, ready=ready, revision=key)
    result["metadata"]["labels"] |= {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER}
    return result


@pytest.mark.parametrize(
    ("deployments", "ready", "serving"),
    [
        ([], "", ""),
        ([("a", "1", 4)], "", "1"),
        ([("a", "2", 4)], "1111", "1"),
        ([("a", "2", 4)], "1112", "1"),
        ([("a", "2", 4)], "1122", "2"),
        ([("a", "3", 4)], "1122", "1"),
        ([("a", "1", 6), ("b", "2", 2)], "11111122", "1"),
        ([("a", "1", 1), ("b", "2", 1)], "12", "1"),
        ([("a", "1", 2), ("b", "2", 6)], "11222222", "2"),
        ([("a", "1", 6), ("b", "2", 8)], "11111122", "1"),
        ([("a", "1", 1), ("b", "2", 1)], "2", "2"),
        ([("a", "1", 0), ("b", "2", 0)], "", "1"),
    ],
    ids=[
        "first", "no pod ready yet", "none of the new ones ready", "a few new ones ready", "half of them new",
        "superseded by a third", "canary", "canary of equal size", "canary with most pods", "just promoted",
        "stable pod not ready", "at zero",
    ],
)  # fmt: skip
def test_the_serving_revision_is_that_of_most_ready_pods(
    deployments: list[tuple[str, str, int]], ready: str, serving: str
) -> None:
    pods = [server(f"p{number}", key) for number, key in enumerate(ready)]
    waiting = [server(f"w{number}", "9", ready=False) for number in range(9)]
    assert serving_revision((deployment(*each) for each in deployments), [*pods, *waiting]) == serving


def cached(cluster: Cluster) -> ManualCaches:
    """Return caches with the Deployments, pods and records of a simulated cluster."""
    at, scope = ManualCaches(), cluster.look()
    at.store(at.caches.resources, dict(scope.resource))
    for (kind, _), obj in scope.children.items():
        if kind is kinds.DEPLOYMENT:
            at.store(at.caches.children[kind], obj)
    for each in scope.pods:
        each["metadata"]["labels"] |= {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER}
        at.store(at.caches.pods, each)
    return at


def connections(cluster: Cluster) -> int:
    """Return the number of requests per pod in the balancers' plan, which the batch size determines."""
    text = cluster.children[kinds.CONFIG_MAP, "digits-balancer"]["data"][PLAN_KEY]
    return BalancerPlan.from_json(text).max_connections


def test_scaling_and_balancers_follow_the_same_revision_throughout_a_rollout() -> None:
    cluster, _, canary = begun(count=8, room=12, steps=[{"weight": weight, "pause": {}} for weight in (25, 75)])
    serving = []
    for request in ({}, {PROMOTE_STEP: f"{canary}/1"}, {PROMOTE: canary}):
        cluster.annotations = request
        for _ in range(8):
            for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start):
                act()
            cluster.now += 1
            stored = stored_serving_revision(cluster.look())
            assert stored is not None
            assert serving_key(cached(cluster).caches, DIGITS) == stored.key
            serving.append(stored.key == canary)
    assert serving == sorted(serving), "the settings change once"


def test_balancers_keep_the_settings_of_most_pods_during_a_surge() -> None:
    cluster = served(room=9, count=4, strategy="Surge")
    before = connections(cluster)
    cluster.key(batching={"maxBatchSize": 2})
    while sum(s.ready and s.revision == cluster.applied[-1] for s in cluster.servers) < 1 or len(cluster.applied) < 2:
        for act in (cluster.operate, cluster.control, cluster.schedule, cluster.start):
            act()
    cluster.operate()
    assert connections(cluster) == before
    cluster.settle(rounds=9, step_s=1)
    assert connections(cluster) == 4


def test_balancers_use_the_settings_of_a_canary_with_most_pods() -> None:
    cluster, _, _ = begun(count=8, room=12, steps=[{"weight": 75, "pause": {}}])
    cluster.settle(rounds=9, step_s=1)
    assert decided(cluster).canary is not None
    assert connections(cluster) == 4


def test_the_image_in_the_status_is_that_of_the_serving_pods() -> None:
    cluster = served(room=9, count=2, strategy="Surge")
    before = status_of(cluster)["runtimeImage"]
    cluster.bad = {cluster.key(runtime={"image": "localhost/tritonserver:new"})}
    cluster.settle(rounds=3, step_s=1)
    assert status_of(cluster)["runtimeImage"] == before
    cluster.bad = set()
    cluster.settle(rounds=9, step_s=1)
    assert status_of(cluster)["runtimeImage"] == "localhost/tritonserver:new"


def test_a_measured_capacity_applies_until_most_ready_pods_are_new() -> None:
    model, subject = Model(), scope_of().subject
    stored = revision.render(subject, SPEC, SITE, None, number=1, as_key="5d7c")
    model.at.store(model.at.caches.children[kinds.CONTROLLER_REVISION], revision.record(subject, stored))
    model.teach(image=stored.template["spec"]["containers"][0]["image"])
    for number in range(3):
        model.at.store(model.at.caches.pods, server(f"p{number}", "5d7c"))
    model.deploy("77aa")
    model.at.store(model.at.caches.pods, server("p3", "77aa"))
    assert (model.capacity().ignored, model.capacity().served.revision) == ("", "digits-5d7c")
    for number in range(2):
        model.at.store(model.at.caches.pods, server(f"p{number}", "77aa"))
    assert "the model serves with digits-77aa" in model.capacity().ignored


def test_a_revision_without_ready_pods_does_not_restart_the_learning_of_capacity() -> None:
    at, model_pods = ManualCaches(), ModelPods()
    for name in ("p0", "p1"):
        at.store(at.caches.pods, server(name, "1"))
    at.store(at.caches.children[kinds.DEPLOYMENT], deployment("a", "1", 2))
    assert model_pods.facts(at.caches, DIGITS, SPEC).revision == "1"
    at.store(at.caches.children[kinds.DEPLOYMENT], deployment("a", "2", 2))
    at.store(at.caches.pods, server("p2", "2", ready=False))
    facts = model_pods.facts(at.caches, DIGITS, SPEC)
    assert (facts.revision, facts.of_revision) == ("1", frozenset({"p0", "p1"}))
    for name in ("p1", "p2"):
        at.store(at.caches.pods, server(name, "2"))
    assert model_pods.facts(at.caches, DIGITS, SPEC).revision == "2"


def test_the_gpus_of_a_replica_are_the_most_of_both_slots() -> None:
    at = ManualCaches()
    at.store(at.caches.children[kinds.DEPLOYMENT], deployment("a", "1", 6, gpus=1))
    at.store(at.caches.children[kinds.DEPLOYMENT], deployment("b", "2", 2, gpus=4))
    assert gpus_each(at.caches, DIGITS) == 4
    assert gpus_each(at.caches, Key("team", "bert")) is None


def test_a_new_leader_reserves_the_gpus_of_both_slots() -> None:
    at = ManualCaches()
    document: dict[str, Any] = {"model": {"source": PVC}, "runtime": {"gpu": {"count": 2}}}
    at.store(at.caches.resources, resource(document))
    for slot, key, replicas in (("a", "1", 3), ("b", "2", 1)):
        at.store(at.caches.children[kinds.DEPLOYMENT], deployment(slot, key, replicas, gpus=2 if slot == "b" else 1))
    specs = {DIGITS: parse("digits", document)}
    reservations = GpuReservations(at.caches, specs, lambda _: None, limited=True)
    assert reservations.gpus(DIGITS).granted == 8


def test_the_shown_capacity_has_the_batch_size_of_the_serving_pods() -> None:
    cluster = served(room=9, count=2, strategy="Surge")
    cluster.spec |= {"batching": {"maxBatchSize": 8}, "scaling": {"minReplicas": 1, "maxReplicas": 4}}
    cluster.settle(rounds=9, step_s=1)
    line = MeasuredLine(instances=1, constant_milliseconds=80, per_row_milliseconds=6, max_batch_size=8)

    def rate() -> float:
        scope = replace(cluster.look(), measured=Measured(Served(instances=1), line=line))
        shown = capacity.make(scope, make(scope))
        assert shown is not None
        return float(shown["requestsPerSecond"])

    before = rate()
    cluster.bad = {cluster.key(batching={"maxBatchSize": 1})}
    cluster.settle(rounds=2, step_s=1)
    assert rate() == before
