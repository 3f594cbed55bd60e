"""Specs with the settings that servers run, in caches: during a canary, and after a rollback."""

from __future__ import annotations

from typing import Any

from halcyon.api.spec import Spec, defaults
from halcyon.api.spec.parse import parse
from halcyon.control.acceptance.accepted_specs import ServingSpecs
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import names, revision
from tests.unit.control.scope_builders import PVC, resource, scope_of
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
