"""Measured capacities in the cache: what they are compared with, and when they are read."""

from __future__ import annotations

from typing import Any

import pytest

from halcyon.api.documents.measured_capacity import GPU_PRODUCT_LABEL
from halcyon.api.spec.parse import parse
from halcyon.control.state.scope import Measured
from halcyon.kube import kinds
from halcyon.kube.kinds import Key
from halcyon.render import revision
from tests.unit.control.scope_builders import PVC, scope_of
from tests.unit.control.state.manual_caches import DIGITS, labelled
from tests.unit.control.state.taught_models import LINE, SPEC, Model
from tests.unit.render.rendered import SITE


def test_a_measured_capacity_of_what_serves_applies() -> None:
    model = Model()
    model.teach()
    measured = model.capacity()
    assert (measured.ignored, measured.served.revision, measured.served.instances) == ("", "digits-5d7c", 2)
    assert measured.line is not None
    assert measured.line.seconds(8) == pytest.approx(0.128)


def test_a_measured_capacity_is_read_once() -> None:
    model = Model()
    model.teach()
    first = model.capacity()
    model.at.store(model.at.caches.children[kinds.CONFIG_MAP], labelled(kinds.CONFIG_MAP, "bert-capacity", "bert"))
    assert model.capacity() is first
    model.teach(lines=[{**LINE, "constantMilliseconds": 90}])
    assert model.capacity() is not first


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("no JSON", {}, "ConfigMap digits-capacity is ignored: capacity.json: Invalid JSON"),
        (None, {"version": 3}, "version is '3'"),
        (None, {"revision": "bert-5d7c"}, "measured with revision bert-5d7c, but the model serves with digits-5d7c"),
        (None, {"image": "other"}, "measured with image other"),
        (None, {"lines": [{**LINE, "instances": 1}]}, "spec.runtime.instancesPerGPU gives 2"),
    ],
)
def test_an_ignored_capacity_names_its_reason(text: str | None, changes: dict[str, Any], reason: str) -> None:
    model = Model()
    model.teach(text, **changes)
    measured = model.capacity()
    assert (measured.line, measured.document) == (None, None)
    assert reason in measured.ignored


def test_the_gpu_product_is_that_of_the_node_selector() -> None:
    model = Model(nodeSelector={GPU_PRODUCT_LABEL: "NVIDIA-L4"})
    model.teach(gpuProduct="NVIDIA-H200")
    assert "GPU product NVIDIA-H200, but the model serves with NVIDIA-L4" in model.capacity().ignored


def test_a_new_revision_ends_a_measured_capacity() -> None:
    model = Model()
    model.teach()
    assert model.capacity().line is not None
    model.deploy("77aa")
    assert "the model serves with digits-77aa" in model.capacity().ignored


@pytest.mark.parametrize("slots", ["ab", "ba"])
def test_a_canary_of_equal_size_keeps_a_measured_capacity(slots: str) -> None:
    model = Model()
    model.teach()
    for day, slot, deployed in zip((28, 29), slots, ("5d7c", "77aa"), strict=True):
        model.deploy(deployed, slot=slot, created=f"2026-11-{day}T03:00:00Z")
    assert (model.capacity().ignored, model.capacity().served.revision) == ("", "digits-5d7c")


def test_a_capacity_applies_after_a_rollback_of_the_instances() -> None:
    model, subject = Model(), scope_of().subject
    stored = revision.render(subject, SPEC, SITE, None, number=1, as_key="5d7c")
    model.at.store(model.at.caches.children[kinds.CONTROLLER_REVISION], revision.record(subject, stored))
    model.teach()
    accepted = parse("digits", {"model": {"source": PVC}, "runtime": {"instancesPerGPU": 4}})
    assert model.measured.of(DIGITS, accepted).ignored == ""
    assert model.measured.of(DIGITS, accepted).served.instances == 2


def test_a_capacity_of_another_name_or_namespace_is_none() -> None:
    model = Model()
    model.teach(name="digits-capacity-2")
    assert model.capacity() == Measured(model.capacity().served)
    model.teach()
    assert model.measured.of(Key("other", "digits"), SPEC) == Measured(
        model.measured.of(Key("other", "digits"), SPEC).served
    )


def test_a_model_that_never_served_ignores_nothing() -> None:
    model = Model()
    model.teach("no JSON")
    model.at.caches.children[kinds.DEPLOYMENT]._store(Key("team", "digits-a"), None)
    assert model.capacity().ignored == ""


def test_the_instances_are_those_of_the_revision_that_serves() -> None:
    """The spec asks for four instances: a canary, which has fewer replicas than the revision that was measured."""
    model = Model()
    lines = [{**LINE, "instances": count, "constantMilliseconds": 40 * count} for count in (2, 4)]
    model.teach(lines=lines)
    model.store_revision(instances=2)
    requested = parse("digits", {"model": {"source": PVC}, "runtime": {"instancesPerGPU": 4}})
    measured = model.measured.of(DIGITS, requested)
    assert measured.served.instances == 2
    assert measured.line is not None
    assert measured.line.constant_milliseconds == 80


def test_a_revision_that_is_cached_late_corrects_the_instances() -> None:
    model = Model()
    model.teach()
    assert model.capacity().served.instances == 2, "the spec's, until the record of the revision is known"
    model.store_revision(instances=3)
    assert model.capacity().served.instances == 3
