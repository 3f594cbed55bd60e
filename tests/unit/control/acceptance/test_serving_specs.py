"""Specs with the settings that servers run, in caches: during a canary, and after a rollback."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance.accepted_specs import ServingSpecs
from halcyon.control.autoscaling.limits.gpu_budget import GpuBudget
from halcyon.control.autoscaling.limits.replica_limits import ReplicaLimits
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import names, revision
from tests.clocks import DrivenClock
from tests.unit.control.scope_builders import PVC, pod, resource, scope_of
from tests.unit.control.state.manual_caches import DIGITS, ManualCaches, labelled
from tests.unit.render.rendered import SITE


def spec_of(size: int, **others: Any) -> Spec:
    return parse("digits", {"model": {"source": PVC}, "batching": {"maxBatchSize": size}, **others})


class Model:
    """A model whose accepted spec has a batch size of 2, in caches. Its Deployments run revisions with other sizes."""

    def __init__(self) -> None:
        self.at, self.accepted = ManualCaches(), spec_of(2, scaling={"minReplicas": 1, "maxReplicas": 8})
        self.at.store(self.at.caches.resources, resource(self.accepted.to_dict()))
        self.specs = ServingSpecs(self.at.caches, self)

    def get(self, key: Key) -> Spec | None:
        return self.accepted if key == DIGITS else None

    def run(self, slot: str, size: int, replicas: int) -> None:
        subject = scope_of().subject
        stored = revision.render(subject, spec_of(size), SITE, None, number=1)
        self.at.store(self.at.caches.children[kinds.CONTROLLER_REVISION], revision.record(subject, stored))
        spec = {"replicas": replicas, "template": {"metadata": {"labels": {names.REVISION_LABEL: stored.key}}}}
        deployment = labelled(kinds.DEPLOYMENT, f"digits-{slot}", "digits", spec=spec)
        self.at.store(self.at.caches.children[kinds.DEPLOYMENT], deployment)

    def pods(self, *running: tuple[int, bool]) -> None:
        """Store pods, each with the batch size of its revision, and whether it is ready."""
        for number, (size, ready) in enumerate(running):
            key = revision.render(scope_of().subject, spec_of(size), SITE, None, number=1).key
            server = pod(f"digits-{number}", ready=ready, revision=key)
            server["metadata"]["labels"] |= {names.OWNER_LABEL: "digits", names.COMPONENT_LABEL: names.SERVER}
            self.at.store(self.at.caches.pods, server)

    def size(self) -> int:
        spec = self.specs.get(DIGITS)
        assert spec is not None
        assert spec.scaling == self.accepted.scaling
        return defaults.targets(spec).queue_depth


def test_the_target_of_the_queue_is_that_of_the_serving_batch_size() -> None:
    model = Model()
    assert model.specs.get(DIGITS) is model.accepted
    model.run("a", 64, replicas=3)
    model.run("b", 2, replicas=1)
    assert model.size() == 64
    assert model.specs.get(DIGITS) is model.specs.get(DIGITS)
    model.run("b", 2, replicas=4)
    assert model.size() == 2
    assert model.specs.get(Key("team", "bert")) is None


def test_a_serving_spec_stays_the_same_object_while_replicas_change() -> None:
    model = Model()
    model.run("a", 64, replicas=3)
    before = model.specs.get(DIGITS)
    model.run("a", 64, replicas=5)
    assert model.specs.get(DIGITS) is before


def test_a_superseded_rollout_leaves_the_settings_of_most_ready_pods() -> None:
    model = Model()
    for size in (64, 16):
        model.run("a", size, replicas=9)
    model.run("a", 4, replicas=9)
    for few, most in ((16, 64), (64, 16)):
        model.pods((most, True), (most, True), (few, True), (4, False))
        assert model.size() == most


def test_a_few_new_pods_do_not_change_the_settings_of_the_others() -> None:
    model = Model()
    model.run("a", 64, replicas=4)
    model.run("a", 2, replicas=4)
    model.pods((64, True), (64, True), (64, True), (2, True))
    assert model.size() == 64
    model.pods((64, True), (64, True), (2, True), (2, True))
    assert model.size() == 2


def test_a_promoted_canary_leaves_the_settings_of_most_ready_pods() -> None:
    model = Model()
    model.run("a", 64, replicas=2)
    model.run("b", 2, replicas=3)
    model.pods((64, True), (64, True), (2, True))
    assert model.size() == 64


def test_settings_follow_pods_that_become_ready_without_a_change_of_the_deployment() -> None:
    model = Model()
    model.run("a", 64, replicas=1)
    model.run("a", 16, replicas=1)
    model.pods((64, True), (16, False))
    assert model.size() == 64
    model.pods((64, False), (16, True))
    assert model.size() == 16


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (0, 2)])
def test_the_gpu_budget_counts_the_larger_number_of_gpus_of_a_rollout(before: int, after: int) -> None:
    model, budget = Model(), GpuBudget(8)
    model.accepted = spec_of(2, runtime={"gpu": {"count": after}}, scaling={"minReplicas": 1, "maxReplicas": 8})
    resources = {"resources": {"limits": {"nvidia.com/gpu": str(before)}}} if before else {}
    template = {"spec": {"containers": [{"name": "triton", **resources}]}}
    deployment = labelled(kinds.DEPLOYMENT, "digits-a", "digits", spec={"replicas": 4, "template": template})
    model.at.store(model.at.caches.children[kinds.DEPLOYMENT], deployment)
    model.at.store(model.at.caches.resources, resource(model.accepted.to_dict() | {"replicas": 4}))
    list(ReplicaLimits(model.at.caches, model, DrivenClock(lambda: 0.0), budget).share(set()))

    limit = budget.request(Key("team", "bert"), desired=4, current=0, gpus=1)
    assert limit is not None
    assert limit.replicas == 0
